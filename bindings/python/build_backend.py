"""build_backend.py - makes the wheel and the sdist, with Python's own modules only

    python3 build_backend.py FOLDER [LIBRARY]      both into FOLDER; the wheel contains LIBRARY, a libtutti.so

Called by `make wheel`, and by pip as a PEP 517 backend: a wheel without LIBRARY uses the libtutti.so of the system. The
wheel has no code for one version of Python, so its tag is py3-none, with manylinux of the glibc that LIBRARY needs.
"""

import base64
import gzip
import hashlib
import io
import os
import platform
import re
import sys
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
OLDEST_GLIBC = 34   # the oldest system with OpenSSL 3, which libtutti needs and the wheel does not contain
ENTRY_POINTS = "[torch.backends]\ntutti = tutti_torch:register\n"
SOURCES = ["pyproject.toml", "build_backend.py", "README.md"]


def read(name):
    with open(os.path.join(HERE, name), "rb") as file:
        return file.read()


def field(name):
    return re.search(rf'^{name} = "(.*)"$', read("pyproject.toml").decode(), re.M).group(1)


def modules():
    return ["tutti_torch.py"] + sorted("tutti/" + name for name in os.listdir(os.path.join(HERE, "tutti")) if name.endswith(".py"))


def metadata():
    return (f"Metadata-Version: 2.4\nName: {field('name')}\nVersion: {field('version')}\nSummary: {field('description')}\n"
            f"License-Expression: {field('license')}\nRequires-Python: {field('requires-python')}\n"
            "Requires-External: libcrypto.so.3 (OpenSSL 3)\nDescription-Content-Type: text/markdown\n\n"
            ).encode() + read("README.md")


def tag_of(library):
    if library is None:
        return "py3-none-any"
    needed = max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library))
    return f"py3-none-manylinux_2_{max(needed, OLDEST_GLIBC)}_{platform.machine()}"


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def build_wheel(folder, config_settings=None, metadata_directory=None):
    path = (config_settings or {}).get("library")
    library = None
    if path:
        with open(path, "rb") as file:
            library = file.read()
    tag, stem = tag_of(library), f"tutti-{field('version')}"
    files = {name: read(name) for name in modules()}
    if library:
        files["tutti/libtutti.so.0"] = library
    info = stem + ".dist-info/"
    files[info + "METADATA"] = metadata()
    files[info + "WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: tutti\nRoot-Is-Purelib: {'false' if library else 'true'}\n"
                             f"Tag: {tag}\n").encode()
    files[info + "entry_points.txt"] = ENTRY_POINTS.encode()
    record = "".join(f"{name},{digest(data)},{len(data)}\n" for name, data in files.items())
    files[info + "RECORD"] = (record + info + "RECORD,,\n").encode()
    name = f"{stem}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for file, data in files.items():
            entry = zipfile.ZipInfo(file)   # of 1980: equal sources give an equal wheel
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            wheel.writestr(entry, data)
    return name


def build_sdist(folder, config_settings=None):
    stem = f"tutti-{field('version')}"
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in [(name, read(name)) for name in SOURCES + modules()] + [("PKG-INFO", metadata())]:
            entry = tarfile.TarInfo(f"{stem}/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    with open(os.path.join(folder, stem + ".tar.gz"), "wb") as file:
        file.write(gzip.compress(plain.getvalue(), mtime=0))
    return stem + ".tar.gz"


if __name__ == "__main__":
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    print(os.path.join(out, build_wheel(out, {"library": sys.argv[2]} if sys.argv[2:] else None)))
    print(os.path.join(out, build_sdist(out)))
