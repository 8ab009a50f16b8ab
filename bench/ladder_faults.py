"""Runs of the engine while an emulated drive fails (every read EIO) or hangs, for bench/drive_ladder. Paced drives only."""

import json
import subprocess
import threading
import time

# With a second copy the reader gives up on a silent drive after 2 s; the drive answers again after this long, so that the
# program can end (the kernel holds on to a read that was begun).
HANG_SECONDS = 6
LONGEST_RUN = 300


class FaultRuns:
    """`single` and `copied` are the command lines for a set without and with a second copy of every record."""

    def __init__(self, drives, single, copied):
        self.drives, self.single, self.copied = drives, single, copied

    def all(self):
        answered = "exit code 0, the same ids"
        whole, _ = self.run("nothing fails", self.single, None)
        rows = [whole | {"ok": whole["exit_code"] == 0, "expected": answered}]
        if not rows[0]["ok"]:
            return rows
        for what in ("fail", "hold"):
            row, text = self.run(f"{what} drive 1, second copies", self.copied, what, whole["ids"])
            rows.append(row | {"ok": row["exit_code"] == 0 and row["same_ids"] and "drive1" in text,
                               "expected": f"{answered}, drive1 named"})
        row, text = self.run("fail drive 1, no second copies", self.single, "fail", whole["ids"])
        rows.append(row | {"ok": row["exit_code"] == 5 and "drive1" in text, "expected": "exit code 5, drive1 named"})
        row, _ = self.run("the drive is back", self.single, None, whole["ids"])
        rows.append(row | {"ok": row["exit_code"] == 0 and row["same_ids"], "expected": answered})
        return rows

    def run(self, case, command, fault, expected=None):
        """(what happened, stderr). The fault comes after the first token."""
        start = time.monotonic()
        process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        killer = threading.Timer(LONGEST_RUN, process.kill)
        killer.start()
        errors = []
        reader = threading.Thread(target=lambda: errors.append(process.stderr.read()))
        reader.start()
        ids, release = [], None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] != "token":
                continue
            ids.append(event["id"])
            if fault and len(ids) == 1:
                self.drives.command(f"{fault} 1 1")
                if fault == "hold":
                    release = threading.Timer(HANG_SECONDS, self.drives.command, ["hold 1 0"])
                    release.start()
        process.wait()
        seconds = time.monotonic() - start
        reader.join()
        killer.cancel()
        if release is not None:
            release.join()
        if fault == "fail":
            self.drives.command("fail 1 0")
        return {"case": case, "exit_code": process.returncode, "seconds": seconds, "tokens": len(ids), "ids": ids,
                "same_ids": expected is None or ids == expected, "stderr": errors[0][-2000:]}, errors[0]
