#!/usr/bin/python3
"""check_spack.py PACKAGE.py CONFIGURE VERSION - checks Spack's recipe where Spack is not installed

Called by check_spack.sh. Runs the recipe with fakes of Spack's directives, for each choice of variants: the version must be
the library's, each option of configure must exist, and each library of an option must be a dependency. Prints one line per
failed check, with exit status 1.
"""
import itertools
import subprocess
import sys
import types

path, configure, version = sys.argv[1:]
found = {name: [] for name in ("version", "variant", "depends_on", "license", "requires")}


def directive(name):
    return lambda *words, **options: found[name].append((words, options))


class Package:
    """A package whose chosen variants are `chosen`"""

    def __init__(self, chosen):
        self.chosen = chosen
        self.spec = Spec(chosen)

    def with_or_without(self, name):
        return [f"--with-{name}" if name in self.chosen else f"--without-{name}"]


class Spec:
    def __init__(self, chosen):
        self.chosen = chosen

    def satisfies(self, wanted):
        return wanted[1:] in self.chosen

    def __getitem__(self, name):
        binaries = types.SimpleNamespace(nvcc="/cuda/bin/nvcc")
        return types.SimpleNamespace(prefix=types.SimpleNamespace(bin=binaries))


def module(name, **contents):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(contents)


module("spack")
module("spack.package", **{name: directive(name) for name in found})
module("spack_repo")
module("spack_repo.builtin")
module("spack_repo.builtin.build_systems")
module("spack_repo.builtin.build_systems.autotools", AutotoolsPackage=Package)
recipe = {}
with open(path, encoding="utf-8") as text:
    exec(compile(text.read(), path, "exec"), recipe)
help_text = subprocess.run([configure, "--help"], stdout=subprocess.PIPE, text=True, check=True).stdout
options = {word.split("[")[0].split("=")[0] for word in help_text.split() if word.startswith("--with-")}
names = [words[0] for words, _ in found["variant"]]
needed = {words[0].split("@")[0].removesuffix("-api") for words, _ in found["depends_on"]}

wrong = [] if [words[0] for words, _ in found["version"]] == [version] else [f"the version is not {version}"]
if version not in recipe["Tutti"].url:
    wrong.append(f"the address has no version {version}")
for count in range(len(names) + 1):
    for chosen in itertools.combinations(names, count):
        for option in recipe["Tutti"](set(chosen)).configure_args():
            library = option.split("=")[0].removeprefix("--with-").removeprefix("--without-")
            if f"--with-{library}" not in options:
                wrong.append(f"configure has no {option}")
            if not option.startswith("--without") and library not in needed | {"nvcc"}:
                wrong.append(f"{option} needs a package that is no dependency")
wrong += [f"variant {name} has no dependency" for name in names if name not in needed]
print("\n".join(sorted(set(wrong))) if wrong else "consistent")
sys.exit(bool(wrong))
