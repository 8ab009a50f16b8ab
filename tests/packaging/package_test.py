#!/usr/bin/env python3
"""What is installed: the program with its model, manual, completions; as a folder and as a .deb, and that removal leaves nothing.

package_test.py BUILD_FOLDER [unittest arguments]
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
PROGRAM = os.path.join(BUILD, "deltafin")
WRITTEN = os.path.join(BUILD, "written")
QUESTION = ["--chat", "--reasoning-effort", "none", "--prompt", "What is the capital of France?", "--max-new", "60", "--quiet",
            "--no-state"]


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)


def output(*command, **options):
    result = run(*command, **options)
    if result.returncode != 0:
        raise AssertionError(f"{command} ended with {result.returncode}: {result.stdout}{result.stderr}")
    return result.stdout


def commands():
    """Every command as words, found by asking --help, not by the table that man page and completions are written from."""
    def below(words):
        text = output(PROGRAM, *words, "--help")
        at = text.find("Subcommands:")
        found = []
        if at >= 0:
            for line in text[at:].splitlines()[1:]:
                match = re.match(r"  ([a-z][a-z-]*)\s", line + " ")
                if match:
                    found.append(words + [match.group(1)])
        for command in list(found):
            found += below(command)
        return found
    return [[]] + below([])


def options(words):
    names = set()
    for line in output(PROGRAM, *words, "--help").splitlines():
        match = re.match(r"  ((?:-[a-z],)?(?:-[a-zA-Z]|--[a-z][a-z0-9-]*)(?:,--[a-z-]+)*)", line)
        if match:
            names.update(match.group(1).split(","))
    return names


def files_below(folder):
    return sorted(os.path.relpath(os.path.join(path, name), folder) for path, _, names in os.walk(folder) for name in names)


class Written(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commands = commands()

    def test_help_was_understood(self):
        self.assertIn(["run"], self.commands)
        self.assertIn(["bench", "kernels"], self.commands)
        self.assertLessEqual({"-h", "--help", "--model", "--prompt", "--threads", "--json"}, options(["run"]))
        self.assertLessEqual({"--model", "--quick", "--verbose"}, options(["doctor"]))

    def test_the_manual_names_every_command_and_option(self):
        with open(os.path.join(WRITTEN, "deltafin.1"), encoding="utf-8") as file:
            text = file.read()
        engine = text.split(".SH ENGINE OPTIONS", 1)[1].split(".SH", 1)[0]
        sections = {part.split('"', 1)[0]: part for part in text.split('.SS "')[1:]}
        for words in self.commands[1:]:
            name = " ".join(["deltafin"] + words)
            self.assertIn(name, sections)
            told = sections[name].split(".SH", 1)[0]
            if "section ENGINE OPTIONS" in told:
                told += engine
            for option in options(words):
                self.assertIn("\\fB" + option.replace("-", "\\-") + "\\fR", told, f"{option} of {name}")
            self.assertIn("\\fB" + name.replace("-", "\\-") + "\\fR", told, "usage of " + name)
        # Once, not in each section.
        self.assertEqual(text.count(".TP\n\\fB\\-\\-expert\\-cache\\fR"), 1)

    def test_the_manual_is_sound_troff(self):
        if not shutil.which("groff"):
            self.skipTest("groff is not installed")
        result = run("groff", "-man", "-Tutf8", "-ww", os.path.join(WRITTEN, "deltafin.1"))
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        plain = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", result.stdout)
        self.assertIn("deltafin bench kernels", plain)
        self.assertIn("--reasoning-effort", plain)

    def complete(self, words, *more):
        script = f"source {WRITTEN}/deltafin.bash; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _deltafin; " \
                 "printf '%s\\n' \"${COMPREPLY[@]}\""
        return output("bash", "--norc", "-c", script, "bash", "deltafin", *words, *more, cwd=self.folder).split("\n")[:-1]

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        os.mkdir(os.path.join(self.folder, "a folder"))
        open(os.path.join(self.folder, "a file"), "w").close()

    def tearDown(self):
        shutil.rmtree(self.folder)

    def test_bash_completes_every_command(self):
        for words in self.commands[1:]:
            self.assertIn(words[-1], self.complete(words[:-1], words[-1][:1]))

    def test_bash_completes_every_option(self):
        for words in self.commands:
            missing = options(words) - set(self.complete(words, "-"))
            self.assertEqual(missing, set(), " ".join(words))

    def test_bash_narrows_by_what_was_typed(self):
        self.assertEqual(self.complete(["run"], "--prompt-f"), ["--prompt-file"])
        self.assertEqual(self.complete(["bench"], "ker"), ["kernels"])
        self.assertNotIn("--prompt", self.complete(["bench", "kernels"], "--"))

    def test_bash_completes_values_by_their_kind(self):
        self.assertEqual(self.complete(["run", "--model"], "a"), ["a folder"])
        self.assertEqual(sorted(self.complete(["run", "--prompt-file"], "a")), ["a file", "a folder"])
        self.assertEqual(self.complete(["run", "--model", "="], "a"), ["a folder"])
        self.assertEqual(self.complete(["run", "--threads"], ""), [""])
        self.assertEqual(self.complete(["completion"], "f"), ["fish"])
        self.assertEqual(self.complete(["run", "--io"], "u"), ["uring"])
        self.assertEqual(self.complete(["plan", "--layout"], "m"), ["mirrored"])
        self.assertEqual(sorted(self.complete(["plan", "--plot"], "a")), ["a file", "a folder"])
        self.assertEqual(sorted(self.complete(["bench", "compare"], "a")), ["a file", "a folder"])
        self.assertEqual(self.complete(["drives"], "a"), ["a folder"])

    def test_choices_that_are_offered_are_those_that_are_taken(self):
        nano = ["--model", "k3-nano", "--prompt", "x", "--max-new", "1", "--no-state", "--quiet"]
        engine = ["--io", "--pin", "--prefetch", "--warm-start", "--kv-dtype", "--dense-mode", "--draft"]
        cases = [(["run"], nano, engine),
                 (["plan"], ["--reference"], ["--layout", "--cache-policy", "--dense"]),
                 (["synth"], ["--shape", "nano", "--out", self.folder + "/x"], ["--routing"]),
                 (["drives"], [self.folder], ["--io"])]
        for words, given, names in cases:
            for name in names:
                refusal = run(PROGRAM, *words, *given, name, "nonsense")
                self.assertEqual(refusal.returncode, 2, refusal.stderr)
                offered = self.complete(words + [name], "")
                expected = re.split(r", | or ", refusal.stderr.split("expected ", 1)[1].split(",\n")[0].split("\n")[0])
                self.assertEqual(sorted(offered), sorted(expected), f"{name} of {words}: {refusal.stderr}")

    def test_other_shells_read_their_scripts(self):
        tried = 0
        for shell, script in (("zsh", "_deltafin"), ("fish", "deltafin.fish")):
            if shutil.which(shell):
                tried += 1
                self.assertEqual(run(shell, "-n", os.path.join(WRITTEN, script)).stderr, "")
        if tried == 0:
            self.skipTest("neither zsh nor fish is installed")

    def test_scripts_of_other_shells_name_every_option(self):
        for script in ("_deltafin", "deltafin.fish"):
            with open(os.path.join(WRITTEN, script), encoding="utf-8") as file:
                text = file.read()
            for words in self.commands:
                for option in options(words):
                    written = f"*{option}[" if script == "_deltafin" else \
                        f" -l {option[2:]} " if option.startswith("--") else f" -s {option[1:]} "
                    self.assertIn(written, text, f"{option} in {script}")


class Installed(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()

    def tearDown(self):
        shutil.rmtree(self.folder)

    def check_tree(self, prefix):
        program = os.path.join(prefix, "bin/deltafin")
        model = os.path.join(prefix, "share/deltafin/models/k3-nano")
        self.assertIn("Paris", output(program, "run", "--model", model, *QUESTION))
        self.assertIn("Paris", output(program, "run", "--model", "k3-nano", "--draft-model", "k3-nano-dspark", *QUESTION,
                                      cwd=self.folder))
        # Its own model, not the source tree's: the answers that are expected come from there.
        report = run(program, "doctor", "--no-state", "--json")
        names = {finding["name"]: finding for finding in json.loads(report.stdout)["findings"]}
        self.assertIn("self-test.answers", names)
        os.rename(model, model + "-away")
        program_alone = os.path.join(self.folder, "alone/bin/deltafin")
        os.makedirs(os.path.dirname(program_alone))
        shutil.copy(program, program_alone)
        report = run(program_alone, "doctor", "--no-state", "--json")
        self.assertIn("self-test.no-model", report.stdout)
        os.rename(model + "-away", model)
        for path in ("share/man/man1/deltafin.1", "share/bash-completion/completions/deltafin",
                     "share/fish/vendor_completions.d/deltafin.fish", "lib/systemd/system/deltafin.service",
                     "share/doc/deltafin/README.md", "share/doc/deltafin/LICENSE", "share/doc/deltafin/docs/TUNING.md",
                     "share/doc/deltafin/copyright", "share/deltafin/models/k3-nano-dspark/model.safetensors",
                     "share/deltafin/models/qwen3-nano/model.safetensors"):
            self.assertTrue(os.path.isfile(os.path.join(prefix, path)), path)
        readme = os.path.join(prefix, "share/doc/deltafin/README.md")
        with open(readme, encoding="utf-8") as file:
            for link in re.findall(r"\]\(([^)#]+)\)", file.read()):
                if "://" not in link:
                    self.assertTrue(os.path.exists(os.path.join(os.path.dirname(readme), link)), link)

    def test_into_a_prefix(self):
        prefix = os.path.join(self.folder, "prefix")
        output("cmake", "--install", BUILD, "--prefix", prefix)
        self.check_tree(prefix)
        self.assertTrue(os.path.isfile(os.path.join(prefix, "share/zsh/site-functions/_deltafin")))
        # As the README says to remove it.
        with open(os.path.join(BUILD, "install_manifest.txt"), encoding="utf-8") as file:
            for path in file.read().split("\n"):
                if path:
                    os.remove(path)
        self.assertEqual(files_below(prefix), [])

    def test_as_a_package(self):
        for program in ("cpack", "dpkg", "dpkg-deb", "dpkg-shlibdeps"):
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed")
        output("cpack", "-G", "DEB", "-B", self.folder, "--config", os.path.join(BUILD, "CPackConfig.cmake"))
        packages = [name for name in os.listdir(self.folder) if name.endswith(".deb")]
        self.assertEqual(len(packages), 1)
        package = os.path.join(self.folder, packages[0])
        fields = output("dpkg-deb", "-f", package)
        self.assertRegex(fields, r"Depends: .*libc6 .*")
        self.assertRegex(fields, r"Depends: .*libicu")
        self.assertNotIn(".so", output("dpkg-deb", "-c", package))
        unpacked = os.path.join(self.folder, "unpacked")
        output("dpkg-deb", "-x", package, unpacked)
        self.check_tree(os.path.join(unpacked, "usr"))
        self.assertTrue(os.path.isfile(os.path.join(unpacked, "usr/share/zsh/vendor-completions/_deltafin")))
        self.assertFalse(os.path.exists(os.path.join(unpacked, "etc")))
        self.install_and_remove(package)

    def install_and_remove(self, package):
        if os.geteuid() != 0:
            self.skipTest("only root can install packages, even into another folder")
        root = os.path.join(self.folder, "root")
        for path in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log", "var/lib/deltafin"):
            os.makedirs(os.path.join(root, path))
        open(os.path.join(root, "var/lib/dpkg/status"), "w").close()
        open(os.path.join(root, "var/lib/deltafin/headers-0.bin"), "w").close()
        dpkg = ["dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless", "--force-not-root"]
        output(*dpkg, "--install", package)
        self.assertTrue(os.path.isfile(os.path.join(root, "usr/bin/deltafin")))
        self.assertFalse(os.path.exists(os.path.join(root, "etc/systemd/system/multi-user.target.wants")))
        output(*dpkg, "--remove", "deltafin")
        ours = lambda: [path for path in files_below(root) if not path.startswith(("var/lib/dpkg/", "var/log/"))]
        self.assertEqual(ours(), ["var/lib/deltafin/headers-0.bin"])
        output(*dpkg, "--purge", "deltafin")
        self.assertEqual(ours(), [])
        self.assertFalse(os.path.exists(os.path.join(root, "usr/share/deltafin")))


if __name__ == "__main__":
    unittest.main()
