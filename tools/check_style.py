#!/usr/bin/env python3
"""Checks what a compiler does not: lengths, comments at the top, forbidden words and literals, tests that nobody runs.

    tools/check_style.py [ROOT]

The limits are those of CONTRIBUTING.md. Faults are printed one a line and make the exit status 1; warnings do not.
Python 3.11, standard library only; asks git for the list of files, or walks the folders where git is missing.
"""

import re
import subprocess
import sys
from pathlib import Path

WARN_FILE_LINES, MAX_FILE_LINES = 450, 600
WARN_FUNCTION_LINES, MAX_FUNCTION_LINES = 40, 60
MIN_HEADER_COMMENT_LINES = 3  # under src/; elsewhere one line will do

# Longer than MAX_FILE_LINES on purpose: tables and generated files. None so far.
LONG_FILES = set()
# Functions longer than MAX_FUNCTION_LINES on purpose, as "file:line text" prefixes. None so far.
LONG_FUNCTIONS = set()

# Where #if, #ifdef and #ifndef may stand: the platform header, kernels (target guards), files chosen by operating system,
# and single queries for a system constant that a kernel header may lack.
CONDITIONALS = [
    "src/base/platform.h",
    "src/base/aligned_buffer.cc",  # MADV_HUGEPAGE
    "src/base/thread_pool.cc",     # the pause instruction
    "src/io/direct_file_linux.cc",  # STATX_DIOALIGN
    "src/io/direct_file_darwin.cc",
    "src/base/machine_*.cc",
    "src/backend/cpu/*",
]

FORBIDDEN_WORDS = ["spine", "mailbox", "roster", "slab", "tape", "pilot", "provider", "ticket", "lease"]
# Names that libraries gave to things.
FOREIGN_NAMES = re.compile(r"set_chunked_content_provider")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|\bplaceholder\b|\bfor now\b", re.I)
# The chat format has an id that its authors call a placeholder, so in these folders the word has a meaning.
PLACEHOLDER_FOLDERS = ("src/text/", "tests/text/", "fuzz/")
K3_LITERALS = re.compile(r"(?<![\w.'])(7168|896|3584|3072|163840|163'840|7'168|3'584|3'072)(?![\w.'])")
K3_LITERAL_FOLDERS = ("src/spec/", "src/synth/")
CODE = {".h", ".cc", ".cu"}


def list_files(root):
    try:
        out = subprocess.run(["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, text=True, check=True).stdout
        names = out.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [str(p.relative_to(root)) for top in ("src", "tests", "fuzz", "bench", "tools", "cmake")
                 for p in (root / top).rglob("*") if p.is_file()]
    return sorted(name for name in names if (root / name).is_file())


def matches(name, pattern):
    begin, star, end = pattern.partition("*")
    return name == pattern if not star else name.startswith(begin) and name.endswith(end)


RAW_STRING = re.compile(r'R"([^(\s]*)\((?:.|\n)*?\)\1"')
TOKEN = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'""", re.S)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def code_only(text):
    """The text with comments, strings and characters blanked, line by line as before."""
    return TOKEN.sub(blank, RAW_STRING.sub(blank, text))


def without_strings(text):
    """The text with strings blanked and comments kept."""
    text = RAW_STRING.sub(blank, text)
    return TOKEN.sub(lambda m: m.group(0) if m.group(0).startswith("/") else blank(m), text)


def header_comment_lines(lines):
    count = 0
    for line in lines:
        if not line.startswith("//"):
            break
        count += 1
    return count


SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b[^()=]*$")


def functions(code):
    """(first line, last line) of every outermost function body, by counting braces in text without comments."""
    found, stack, statement_start = [], [], 0
    line = 1
    for i, c in enumerate(code):
        if c == "\n":
            line += 1
        elif c == "{" and i > 0 and (code[i - 1].isalnum() or code[i - 1] in "_>"):
            stack.append(("value", line))  # a{1}: no blank before the brace, so it starts no body
        elif c == "{":
            statement = code[statement_start:i].strip()
            inside = any(kind == "function" for kind, _ in stack)
            if inside:
                kind = "block"
            elif SCOPE.search(statement) and not statement.endswith(")"):
                kind = "scope"
            elif ")" in statement and not statement.rstrip().endswith(("=", ",", "(")):
                kind = "function"
            else:
                kind = "block"
            first = line - statement.count("\n")
            stack.append((kind, first))
            statement_start = i + 1
        elif c == "}":
            if stack:
                kind, first = stack.pop()
                if kind == "value":
                    continue
                if kind == "function":
                    found.append((first, line))
            statement_start = i + 1
        elif c == ";":
            statement_start = i + 1
    return found


def check_code_file(name, text, faults, warnings):
    lines = text.splitlines()
    if len(lines) > MAX_FILE_LINES and name not in LONG_FILES:
        faults.append(f"{name}: {len(lines)} lines, at most {MAX_FILE_LINES}")
    elif len(lines) > WARN_FILE_LINES and name not in LONG_FILES:
        warnings.append(f"{name}: {len(lines)} lines, better below {WARN_FILE_LINES}")
    if name.endswith(".h"):
        check_header(name, lines, faults)
    prose = without_strings(text)
    for number, line in enumerate(prose.splitlines(), 1):
        if name.startswith(PLACEHOLDER_FOLDERS):
            line = re.sub("placeholder", "", line, flags=re.I)
        if UNFINISHED.search(line):
            faults.append(f"{name}:{number}: unfinished work does not belong here: {line.strip()}")
    if name.startswith("src/"):
        check_source(name, text, faults, warnings)


def check_header(name, lines, faults):
    comment = header_comment_lines(lines)
    wanted = MIN_HEADER_COMMENT_LINES if name.startswith("src/") else 1
    if comment < wanted:
        faults.append(f"{name}: {comment} comment lines at the top, at least {wanted}: what it is, "
                      "what it is not, who owns it, thread rule, errors")
    if not name.endswith("-inl.h") and "#pragma once" not in lines:
        faults.append(f"{name}: no #pragma once")


def check_source(name, text, faults, warnings):
    code = code_only(text)
    for number, line in enumerate(code.splitlines(), 1):
        if re.match(r"\s*#\s*(if|ifdef|ifndef)\b", line) and not any(matches(name, p) for p in CONDITIONALS):
            faults.append(f"{name}:{number}: #if outside the files that tools/check_style.py lists")
        if re.search(r"\bgetenv\b", line) and not name.startswith("src/app/"):
            faults.append(f"{name}:{number}: getenv outside src/app")
        literal = K3_LITERALS.search(line)
        if literal and not name.startswith(K3_LITERAL_FOLDERS):
            faults.append(f"{name}:{number}: {literal.group(0)} is a size of K3: take it from ModelSpec")
    for number, line in enumerate(text.splitlines(), 1):
        for word in re.findall(r"[a-z]+|[A-Z][a-z]+", FOREIGN_NAMES.sub("", line)):
            if word.lower().removesuffix("s") in FORBIDDEN_WORDS:
                faults.append(f"{name}:{number}: the word '{word.lower()}' is not used here (docs/GLOSSARY.md)")
    starts = text.splitlines()
    for first, last in functions(code):
        length = last - first + 1
        label = f"{name}:{first}: {starts[first - 1].strip()[:60]}"
        if f"{name}:{starts[first - 1].strip()}" in LONG_FUNCTIONS:
            continue
        if length > MAX_FUNCTION_LINES:
            faults.append(f"{label}: {length} lines, at most {MAX_FUNCTION_LINES}")
        elif length > WARN_FUNCTION_LINES:
            warnings.append(f"{label}: {length} lines, better below {WARN_FUNCTION_LINES}")


def check_registered(root, names, faults):
    """Every *_test.cc is listed in the CMakeLists.txt of its folder or one above."""
    for name in names:
        if not name.endswith("_test.cc"):
            continue
        folder = (root / name).parent
        while folder != root and not (folder / "CMakeLists.txt").is_file():
            folder = folder.parent
        listed = (folder / "CMakeLists.txt").read_text(encoding="utf-8") if folder != root else ""
        listed = re.sub(r"#.*", "", listed)
        relative = str((root / name).relative_to(folder))
        if not re.search(rf"(?<![\w/.]){re.escape(relative)}(?![\w/.])", listed):
            faults.append(f"{name}: not listed in a CMakeLists.txt, so nobody runs it")


def check(root):
    """(faults, warnings) of the tree under `root`."""
    faults, warnings = [], []
    names = list_files(root)
    for name in names:
        if Path(name).suffix in CODE and name.startswith(("src/", "tests/", "fuzz/", "bench/")):
            check_code_file(name, (root / name).read_text(encoding="utf-8"), faults, warnings)
    check_registered(root, names, faults)
    return faults, warnings


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults, warnings = check(root)
    for warning in warnings:
        print("warning: " + warning)
    for fault in faults:
        print(fault)
    print(f"check_style: {len(faults)} faults, {len(warnings)} warnings")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
