#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Makes a Python environment in which cloudlab/profile.py runs at home: venv.sh DIR
#
# The geni-lib of the Python package index was written for Python 2. So the script converts it with 2to3, which is part
# of Python up to 3.12. CloudLab's portal has its own copy and does not need this.
set -euo pipefail

dir=${1:?usage: cloudlab/venv.sh DIR}
works() { "$dir/bin/python" -c 'import geni.portal, geni.rspec.emulab, geni.rspec.igext' 2>/dev/null; }
! works || exit 0
python=${VB_PYTHON:-python3}
if ! "$python" -c 'import lib2to3' 2>/dev/null; then
    echo "venv.sh: $("$python" --version) has no lib2to3: apt-get install python3-lib2to3, or set VB_PYTHON to a Python up to 3.12" >&2
    exit 1
fi
[ -x "$dir/bin/python" ] || "$python" -m venv "$dir"
"$dir/bin/pip" -q --disable-pip-version-check install geni-lib==0.9.9.4 six
geni=$("$dir/bin/python" -c 'import importlib.util as u; print(u.find_spec("geni").submodule_search_locations[0])')
# Python 3 tells text from bytes, and the library writes bytes to a text file.
sed -i 's/buf = self.toXMLString(True)$/buf = self.toXMLString(True, True)/' "$geni/rspec/pg.py"
"$dir/bin/python" -W ignore -m lib2to3 -w -n --no-diffs "$geni" >"$dir/2to3.log" 2>&1
works || { echo "venv.sh: the converted geni-lib does not work: $dir/2to3.log" >&2 && exit 1; }
