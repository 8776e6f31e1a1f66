#!/bin/sh
# pandas_wheel.sh FOLDER: compiles the wheel of pandas 1.5.3 for Python 3.12, which PyPI lacks.
# Its setup needs two names of configparser that 3.12 no longer has.
set -eu
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
python3.12 -m venv "$build"
"$build/bin/pip" install "setuptools<69" wheel cython==0.29.37 numpy==1.26.4
echo "import configparser as c; c.SafeConfigParser = c.ConfigParser; c.ConfigParser.readfp = c.ConfigParser.read_file" \
    > "$build/lib/python3.12/site-packages/removed_in_3_12.pth"
CFLAGS="-O0 -g0 -w" "$build/bin/pip" wheel --no-deps --no-build-isolation --no-binary pandas -w "$1" pandas==1.5.3
