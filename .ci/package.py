"""Compares the files of packages, on standard input, with patterns: see `.ci/package.patterns`."""

import re
import sys

lines = [line.split() for line in open(sys.argv[1]) if not line.startswith("#")]
packages = {}
for path in sys.stdin.read().split():
    package, file = path.split("/", 1)
    packages.setdefault(re.sub(r"-\d[^/]*$", "", package), []).append(file)
wrong = [f"{crate}: there is no such package" for crate, _ in lines if crate not in [*packages, "*"]]
for package, files in packages.items():
    patterns = [pattern for crate, pattern in lines if crate in (package, "*")]
    fits = {pattern: [f for f in files if re.fullmatch(pattern, f)] for pattern in patterns}
    wrong += [f"{package}: nothing is {pattern}" for pattern in patterns if not fits[pattern]]
    superfluous = sorted(set(files) - {f for fitting in fits.values() for f in fitting})
    wrong += [f"{package}: {file} is superfluous" for file in superfluous]
    missing = {"LICENSE-APACHE", "LICENSE-MIT", "README.md"} - set(files)
    wrong += [f"{package}: {file} is missing" for file in sorted(missing)]
print(f"package: {len(packages)} packages", *wrong, sep="\n")
sys.exit(bool(wrong) or len(packages) < 11)
