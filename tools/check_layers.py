#!/usr/bin/env python3
"""Checks the includes under src/: folders include only what the table in cmake/layers.cmake allows, every third-party
header has one wrapper, and no files include each other in a circle.

    tools/check_layers.py [ROOT]

Prints one line a fault and exits 1 if there is one. Python 3.11, standard library only.
"""

import re
import sys
from pathlib import Path

# Third-party headers (by their beginning) and the only files of src/ that may include them. A trailing slash or star
# allows several: nlohmann's type may be used in .cc files, never in a header, since base/json.h only forward-declares it.
THIRD_PARTY = {
    "tl/": ["base/result.h"],
    "nlohmann/json_fwd.hpp": ["base/json.h"],
    "nlohmann/": ["*.cc"],
    "simdjson": ["checkpoint/safetensors.cc"],
    "xxhash": ["checkpoint/integrity.cc"],
    "liburing": ["io/uring_engine.cc"],
    "unicode/": ["text/unicode_classes.cc"],
    "hwy/": ["backend/cpu/*"],
    "CLI/": ["app/*.cc"],
    "httplib": ["server/http_server.cc"],
    "curl/": ["setup/http_client.cc"],
    "openssl/": ["base/digest.cc"],
    "histedit": ["app/line_reader.cc"],
    "gtest/": [],
    "gmock/": [],
}

INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')
ROW = re.compile(r'^\s*"([a-z_/]+):([a-z_/ ]*)"\s*$')
SUFFIXES = {".h", ".cc", ".cu"}


def read_table(text):
    """The rows of DELTAFIN_LAYERS as {folder: set of folders}."""
    body = re.search(r"set\(DELTAFIN_LAYERS(.*?)\n\)", text, re.S)
    if not body:
        raise ValueError("cmake/layers.cmake: no set(DELTAFIN_LAYERS ...)")
    table = {}
    for line in body.group(1).splitlines():
        if not line.strip():
            continue
        row = ROW.match(line)
        if not row:
            raise ValueError(f"cmake/layers.cmake: cannot read the row {line.strip()}")
        table[row.group(1)] = set(row.group(2).split())
    return table


def includes_of(path):
    """(line number, quoted with "", name) of every include."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            found.append((number, match.group(1) == '"', match.group(2)))
    return found


def folder_of(name, table):
    """The longest folder of the table that `name` lies in, or None."""
    parts = name.split("/")[:-1]
    while parts:
        folder = "/".join(parts)
        if folder in table:
            return folder
        parts.pop()
    return None


def matches(name, pattern):
    if pattern.startswith("*"):
        return name.endswith(pattern[1:])
    if "*" in pattern:
        begin, end = pattern.split("*")
        return name.startswith(begin) and name.endswith(end)
    return name == pattern


def check_third_party(name, header):
    for prefix, allowed in THIRD_PARTY.items():
        if header.startswith(prefix):
            if any(matches(name, pattern) for pattern in allowed):
                return None
            return f"<{header}> may be included only by {', '.join(allowed) or 'tests'}"
    return None


def is_system(header):
    """Standard and operating-system headers: no folder, or one of the system's."""
    return "/" not in header or header.split("/")[0] in {"sys", "linux", "mach", "net", "netinet", "arpa", "asm"}


def check_file(name, path, table, known):
    """Faults of one file, and the files of src/ that it includes."""
    faults, edges = [], []
    folder = folder_of(name, table)
    if folder is None:
        return [f"src/{name}: its folder is not in cmake/layers.cmake"], []
    for line, quoted, header in includes_of(path):
        where = f"src/{name}:{line}"
        target = folder_of(header, table)
        if target is not None:
            if header not in known:
                faults.append(f"{where}: {header} does not exist")
            elif target != folder and target not in table[folder]:
                faults.append(f"{where}: {folder} may not include {target} ({header})")
            edges.append(header)
            continue
        fault = check_third_party(name, header)
        if fault:
            faults.append(f"{where}: {fault}")
        elif quoted:
            faults.append(f'{where}: "{header}" is not relative to src/')
        elif not is_system(header) and not any(header.startswith(prefix) for prefix in THIRD_PARTY):
            faults.append(f"{where}: <{header}> is a library that tools/check_layers.py does not know")
    return faults, edges


def find_cycle(graph):
    """One circle of includes as a list of names, or None."""
    state = {}
    for start in sorted(graph):
        if start in state:
            continue
        stack = [(start, iter(graph[start]))]
        state[start] = "open"
        while stack:
            node, targets = stack[-1]
            for target in targets:
                if state.get(target) == "open":
                    names = [entry[0] for entry in stack]
                    return names[names.index(target):] + [target]
                if target in graph and target not in state:
                    state[target] = "open"
                    stack.append((target, iter(graph[target])))
                    break
            else:
                state[node] = "done"
                stack.pop()
    return None


def check(root):
    table = read_table((root / "cmake/layers.cmake").read_text(encoding="utf-8"))
    src = root / "src"
    files = {str(p.relative_to(src)): p for p in sorted(src.rglob("*")) if p.suffix in SUFFIXES}
    faults, graph = [], {}
    for name, path in files.items():
        found, edges = check_file(name, path, table, files)
        faults += found
        # Highway compiles a file once more for each target by including itself by name; that is not a circle.
        graph[name] = [edge for edge in edges if edge != name]
    cycle = find_cycle(graph)
    if cycle:
        faults.append("files include each other in a circle: " + " -> ".join(cycle))
    return faults


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    faults = check(root)
    for fault in faults:
        print(fault)
    print(f"check_layers: {len(faults)} faults" if faults else "check_layers: ok")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
