"""What the draft ladder asks of the rows of `deltafin bench draft --json`. Measures nothing."""

LEAST_BOUND, LEAST_AUTO = 0.95, 0.97


def bound_of(row, plain):
    """The speed-up that reading and drafting alone would allow."""
    steps = row["tokens"] / row["tokens_per_step"]
    bytes_a_step = row["payload_bytes_per_token"] * row["tokens_per_step"] / plain["payload_bytes_per_token"]
    drafting = row["seconds_drafting"] / steps / plain["seconds_per_token"]
    return row["tokens_per_step"] / (bytes_a_step + drafting)


def is_controlled(row):
    """Whether a controller chose what was checked: all drafters together, or one that was asked for by name."""
    return row["drafts"] == "auto"


def speed_holds(row, speed_up, against_bound):
    return speed_up >= LEAST_AUTO if is_controlled(row) else against_bound >= LEAST_BOUND


def union_fault(row):
    """Empty where a run without read-ahead read each expert that a step's rows wanted once, unless the cache held it."""
    e = row["experts"]
    ahead = e["bytes_prefetch_useful"] + e["bytes_prefetch_wasted"]
    if ahead:
        return f"{ahead} bytes were read ahead: measure with --prefetch off"
    missing = e["wanted"] - e["held"]
    if missing <= 0:
        return "everything was held: measure with a smaller cache"
    if e["bytes_demand"] != missing * e["record_bytes"]:
        return f"{e['bytes_demand']} bytes read, expected {missing} experts of {e['record_bytes']}"
    return ""


def in_vain(row):
    """The part of what was read that no step wanted."""
    e = row["experts"]
    read = e["bytes_demand"] + e["bytes_prefetch_useful"] + e["bytes_prefetch_wasted"]
    return e["bytes_prefetch_wasted"] / read if read else 0.0
