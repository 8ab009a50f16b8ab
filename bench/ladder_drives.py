"""Emulated drives for bench/drive_ladder: images in memory, a loop device and a file system on each, a speed limit.

Two ways to limit the speed: "paced" puts our own FUSE server (paced_drives.cc) under the loop devices, "throttle" uses the
kernel's blkio.throttle (cgroup v1), which works in slices of 100 ms and is honest only for long windows. Needs root and
Linux. Everything is taken down again when the `with` block ends, also by an exception or a signal that became one.
Python 3.11, standard library only.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup/blkio")
PAGE = 4096


class SetUpError(Exception):
    """What went wrong, in a sentence."""


class CannotRun(SetUpError):
    """What is missing on this machine, in a sentence."""


def run(*command, check=True):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if check and done.returncode != 0:
        raise SetUpError(f"{' '.join(str(c) for c in command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            raise SetUpError(f"{program} is missing: tools/install-deps --all")


class EmulatedDrives:
    """`bytes_each` is the size of each image; `server` the paced_drives program; `images` a folder in memory."""

    def __init__(self, bytes_each, method, server, images="/dev/shm", file_system="xfs"):
        self.bytes_each = [n // PAGE * PAGE for n in bytes_each]
        self.method = method
        self.server = server
        self.images_root = images
        self.file_system = file_system
        self.work = self.images = self.process = self.cgroup = None
        self.loops, self.folders = [], []
        self.fuse_mounted = False

    def __enter__(self):
        try:
            self._set_up()
        except SetUpError as error:
            self._take_down()
            raise CannotRun(str(error)) from error
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(self, *_):
        self._take_down()

    # --- set-up ---

    def _set_up(self):
        if os.geteuid() != 0:
            raise SetUpError("emulated drives need root: loop devices and mounts")
        need("losetup", "mount", "umount", f"mkfs.{self.file_system}")
        self.images = Path(tempfile.mkdtemp(prefix="deltafin-ladder-", dir=self.images_root))
        self.work = Path(tempfile.mkdtemp(prefix="deltafin-ladder-"))
        backing = [self.images / f"drive{i}.img" for i in range(len(self.bytes_each))]
        for path, size in zip(backing, self.bytes_each):
            with open(path, "wb") as file:
                file.truncate(size)
        if self.method == "paced":
            backing = self._start_server(backing)
        else:
            self._make_cgroup()
        for i, path in enumerate(backing):
            self._attach(i, path)

    def _start_server(self, images):
        if not Path(self.server).is_file():
            raise SetUpError(f"{self.server}: missing: tools/install-deps --all, then build the target paced_drives")
        if not Path("/dev/fuse").exists():
            raise SetUpError("/dev/fuse is missing: this kernel or container has no FUSE")
        point = self.work / "paced"
        point.mkdir()
        self.process = subprocess.Popen([self.server, point, *images])
        self.fuse_mounted = True
        for _ in range(200):
            if (point / "control").exists():
                return [point / f"drive{i}" for i in range(len(images))]
            if self.process.poll() is not None:
                raise SetUpError(f"{self.server} ended with {self.process.returncode}")
            time.sleep(0.02)
        raise SetUpError(f"{self.server} does not answer")

    def _make_cgroup(self):
        if not (CGROUP / "blkio.throttle.read_bps_device").exists():
            raise SetUpError("no blkio.throttle here (cgroup v1): use --method paced")
        self.cgroup = CGROUP / f"deltafin-ladder-{os.getpid()}"
        self.cgroup.mkdir()

    def _attach(self, i, path):
        loop = run("losetup", "--find", "--show", "--direct-io=on", path)
        self.loops.append(loop)
        # No discards: they would only write zeros through the whole chain.
        flags = {"xfs": ["-q", "-K"], "ext4": ["-q", "-m0", "-E", "nodiscard,lazy_itable_init=0"]}[self.file_system]
        run(f"mkfs.{self.file_system}", *flags, loop)
        folder = self.work / f"drive{i}"
        folder.mkdir()
        run("mount", "-o", "noatime", loop, folder)
        self.folders.append(folder)

    def write_protect(self):
        """Mounts the drives read-only, as they may be while a model runs. A file system that is writable gives up for good when
        its own writes fail: then the drive would not be back when it answers again."""
        for folder in self.folders:
            run("mount", "-o", "remount,ro", folder)

    # --- taking down ---

    def _take_down(self):
        self._quietly(lambda: [self.command(f"hold {i} 0") for i in range(len(self.loops))])
        for folder in reversed(self.folders):
            for _ in range(20):
                if subprocess.run(["umount", folder], capture_output=True).returncode == 0:
                    break
                time.sleep(0.1)
            else:
                subprocess.run(["umount", "-l", folder], capture_output=True)
        for loop in reversed(self.loops):
            subprocess.run(["losetup", "-d", loop], capture_output=True)
        if self.fuse_mounted:
            self._stop_server()
        if self.cgroup is not None:
            self._quietly(self.cgroup.rmdir)
        if self.images is not None:
            shutil.rmtree(self.images, ignore_errors=True)
        if self.work is not None:
            # Only folders that nothing is mounted on any more.
            for folder in [*self.folders, self.work / "paced"]:
                self._quietly(folder.rmdir)
            self._quietly(self.work.rmdir)
        self.folders, self.loops = [], []

    def _stop_server(self):
        for _ in range(20):
            if subprocess.run(["umount", self.work / "paced"], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", "-l", self.work / "paced"], capture_output=True)
        try:
            self.process.wait(2)
        except subprocess.TimeoutExpired:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    @staticmethod
    def _quietly(action):
        try:
            action()
        except OSError:
            pass

    # --- use ---

    def command(self, line):
        """A line for the paced server: "rate 0 1e8", "fail 2 1", "hold 2 1"."""
        if self.method == "paced" and self.work is not None and (self.work / "paced/control").exists():
            (self.work / "paced/control").write_text(line + "\n")

    def set_rates(self, rates, latency_us=80):
        """Bytes a second of each drive; 0 is no limit."""
        for i, rate in enumerate(rates):
            if self.method == "paced":
                self.command(f"rate {i} {rate:.0f}")
                self.command(f"latency {i} {latency_us if rate else 0}")
            else:
                device = Path(f"/sys/block/{Path(self.loops[i]).name}/dev").read_text().strip()
                (self.cgroup / "blkio.throttle.read_bps_device").write_text(f"{device} {rate:.0f}")

    def enter_limits(self):
        """In the child, before it becomes the program: throttled are only those in the group."""
        if self.cgroup is not None:
            (self.cgroup / "cgroup.procs").write_text(str(os.getpid()))

    def bytes_read(self):
        """Read from each device so far, as the kernel counts it."""
        return [int(Path(f"/sys/block/{Path(loop).name}/stat").read_text().split()[2]) * 512 for loop in self.loops]
