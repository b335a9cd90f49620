# SPDX-License-Identifier: MIT
# shellcheck shell=bash disable=SC2154 # bench/compare sets the options
#
# bench/compare: sparse logistic regression beside liblinear, from a text file to a model, with default options.

# rows_of SEED N: rows with 30 of 20,000 features, frequent ones often; hidden weights decide the label, with noise
rows_of() {
    awk -v seed="$1" -v n="$2" 'BEGIN {
        srand(7); for (f = 1; f <= 20000; f++) w[f] = rand() - 0.5
        srand(seed)
        for (i = 0; i < n; i++) {
            sum = 0; line = ""; f = 0
            for (k = 0; k < 30; k++) {
                f += 1 + int(rand() ^ 4 * 650)
                sum += w[f]; line = line " " f ":1"
            }
            print (sum + (rand() - 0.5) > 0 ? "+1" : "-1") line
        }
    }'
}

# The commands print seconds, with reading and writing of files, and the accuracy on rows that they have not seen.
liblinear_peer() {
    local begin
    begin=$(date +%s.%N)
    limited liblinear-train -s 0 -q "$dir/rows.train" "$dir/rows.model" >/dev/null || return 1
    begin=$(jq -n "$(date +%s.%N) - $begin")
    echo "$begin $(liblinear-predict "$dir/rows.test" "$dir/rows.model" /dev/null | sed -n 's/^Accuracy = \([0-9.]*\)%.*/\1/p')"
}

liblinear_ours() {
    local begin
    begin=$(date +%s.%N)
    limited build/verbena train sparse-lr --data "libsvm:$dir/rows.train" --test-data "libsvm:$dir/rows.test" \
        --json >"$dir/result" 2>"$dir/why" || return 1
    echo "$(jq -n "$(date +%s.%N) - $begin") $(jq '.accuracy * 100' "$dir/result")"
}

liblinear() {
    local n=$((quick ? 20000 : 100000))
    if ! command -v liblinear-train >/dev/null; then
        without liblinear "install liblinear-tools"
        return 0
    fi
    [ -s "$dir/rows.test" ] || { rows_of 1 $n >"$dir/rows.train" && rows_of 2 10000 >"$dir/rows.test"; }
    alternate liblinear_ours -- liblinear_peer || return 0
    row "$n rows, file to model" liblinear s low
    printf 'logistic regression on %d rows: %.2f s, accuracy %.2f %%   liblinear %.2f s, accuracy %.2f %%   ratio %.2f\n' $n \
        "$(cut -d ' ' -f 1 "$dir/a" | median)" "$(cut -d ' ' -f 2 "$dir/a" | median)" \
        "$(cut -d ' ' -f 1 "$dir/b" | median)" "$(cut -d ' ' -f 2 "$dir/b" | median)" "$(jq -s '.[-1].ratio' "$rows")"
}
