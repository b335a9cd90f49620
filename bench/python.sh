# SPDX-License-Identifier: MIT
# shellcheck shell=bash

# python_with MODULE...: prints the first Python that has all modules: of those that VB_PYTHON names, separated by
# colons, then the system's, then that of PATH. Prints nothing and fails if there is none.
python_with() {
    local python candidates=()
    IFS=: read -ra candidates <<<"${VB_PYTHON:-}"
    for python in "${candidates[@]}" /usr/bin/python3 python3; do
        if timeout 60 "$python" -c 'import importlib.util as u, sys
sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))' "$@" 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}
