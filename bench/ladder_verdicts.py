"""What the drive ladder must show, and whether it did. Pure functions of the results.

Figures of time are judged by the median of the seeds of a cell. Facts do not depend on time or on how busy the machine is:
bytes that were read, tokens, what happened at faults. Only facts are fit for a test that must not fail now and then.
"""

from statistics import median

PERCENT, PERCENT_AHEAD, PERCENT_OF_PROBE = 95, 97, 95
READ_OVER_NEEDED = 1.01
PROMPT_READING = 1.15  # of the bytes over the limits, beside the arithmetic


def verdict(what, got, expected, ok):
    return {"what": what, "got": got, "expected": expected, "ok": ok}


def cells(rows, *keys):
    """{key values: rows}, in order of appearance."""
    found = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def striped(results):
    """Every cell that the targets speak of: (name, with read-ahead, its rows)."""
    rows = [row for row in results.get("reads", []) if row["placement"] == "striped"]
    for part, rows in (("scheduler", rows), ("engine", results.get("engine", []))):
        for (total, drives, ahead), runs in cells([{"ahead": False} | row for row in rows], "sum", "drives", "ahead").items():
            name = f"{part}, {total / 1e6:.0f} MB/s, {drives} {'drive' if drives == 1 else 'drives'}"
            yield name + (", read-ahead" if ahead else ""), ahead, runs


def read_verdict(name, over):
    return verdict(f"{name}: bytes read over bytes needed", f"{over:.4f}", f"at most {READ_OVER_NEEDED}", over <= READ_OVER_NEEDED)


def times(results):
    found = []
    for name, ahead, runs in striped(results):
        percent, least = median(row["percent_of_limit"] for row in runs), PERCENT_AHEAD if ahead else PERCENT
        found.append(verdict(f"{name}: part of the summed limits", f"{percent:.1f} %", f"at least {least} %", percent >= least))
        # Of the tokens in the window. The devices' counters also hold those from which the engine learns what is worth a read.
        if ahead and name.startswith("engine"):
            found.append(read_verdict(name, median(row["read_over_needed"] for row in runs)))
    for row in results.get("prompt", []):
        most = PROMPT_READING * row["seconds_reading_bound"] + row["seconds_arithmetic"]
        found.append(verdict(f"prompt, {row['sum'] / 1e6:.0f} MB/s, {row['drives']} drives: first token", f"{row['seconds']:.2f} s",
                             f"at most {most:.2f} s", row["seconds"] <= most))
    for plain in results.get("plain", []):
        percent = plain["percent_of_probe"]
        found.append(verdict(f"{plain['name']}: records as part of the probe", f"{percent:.1f} %",
                             f"at least {PERCENT_OF_PROBE} %", percent >= PERCENT_OF_PROBE))
    return found


def facts(results):
    found = []
    for name, ahead, runs in striped(results):
        if ahead and name.startswith("engine"):
            continue  # how much is read in vain depends on time: see times()
        found.append(read_verdict(name, max(row["device_over_needed"] for row in runs)))
    for row in results.get("prompt", []):
        name = f"prompt, {row['sum'] / 1e6:.0f} MB/s, {row['drives']} drives"
        found.append(read_verdict(name, row["device_over_needed"]))
        passes = row["layer_passes"]
        found.append(verdict(f"{name}: layer passes", f"{passes}", f"{row['layers']}", passes == row["layers"]))
    for (seed,), runs in cells(results.get("engine", []), "seed").items():
        # Runs with read-ahead are longer.
        length = min(len(row["ids"]) for row in runs)
        answers = {tuple(row["ids"][:length]) for row in runs}
        same = len(answers) == 1 and length > 0
        found.append(verdict(f"engine, seed {seed}: answers of {len(runs)} runs",
                             "all the same" if same else f"{len(answers)} different, or empty", "all the same", same))
    for row in results.get("faults", []):
        same = "the same ids" if row["same_ids"] else "other or fewer ids"
        found.append(verdict(f"faults: {row['case']}", f"exit code {row['exit_code']}, {same}", row["expected"], row["ok"]))
    return found


def table(verdicts):
    width = max((len(v["what"]) for v in verdicts), default=0)
    lines = [f"  {'ok    ' if v['ok'] else 'FAILED'}  {v['what']:<{width}}  {v['got']}, expected {v['expected']}"
             for v in verdicts]
    bad = sum(not v["ok"] for v in verdicts)
    end = f"{len(verdicts) - bad} of {len(verdicts)} as they must be" if verdicts else "nothing that could be judged was measured"
    return "\n".join(["verdicts", *lines, end])


def all_good(verdicts):
    return bool(verdicts) and all(v["ok"] for v in verdicts)
