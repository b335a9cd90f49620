# SPDX-License-Identifier: MIT
#
# Numbers and tables as Markdown. A number that was not measured is "-".

def fixed(d):
  if type != "number" then "-"
  else (if . < 0 then "-" else "" end) as $sign
    | (fabs * pow(10; d) | round | tostring) as $digits
    | if d == 0 then $sign + $digits
      else (("0000000000"[0:([d + 1 - ($digits | length), 0] | max)]) + $digits) as $all
        | $sign + $all[0:-d] + "." + $all[-d:]
      end
  end;

# Three significant digits.
def sig:
  if type != "number" then "-"
  elif . == 0 then "0"
  else (2 - (fabs | log10 | floor)) as $d
    | if $d > 9 then tostring elif $d > 0 then fixed($d) else fixed(0) end
  end;

def percent: if type == "number" then 100 * . | fixed(2) else "-" end;
def row: "| " + (map(tostring) | join(" | ")) + " |";
def table(head; rows): (head | row), (head | map("---") | row), (rows | row);

def median:
  map(numbers) | sort
  | if length == 0 then null
    else (.[(length - 1) / 2 | floor] + .[length / 2 | floor]) / 2
    end;

# The median of f over the runs of the input that pass the filter.
def over(filter; f): [.[] | select(filter) | f] | median;

# a / b, or null
def ratio(a; b): if (a | type) == "number" and (b | type) == "number" and b != 0 then a / b else null end;

def workers: [.per_rank[] | select(.role == "worker")];

# What node K has sent and received: by its interface, or by the rank's transports if it has none of its own.
def sent($k): .wire[$k].sent // .per_rank[$k].send_mb_s;
def received($k): .wire[$k].received // .per_rank[$k].recv_mb_s;

# CPU of node K in percent of one CPU: a server that is a thread is part of its rank's process.
def mode_name:
  if .mode == "async" and .staleness.bound == 0 then "sync, by a server"
  elif .mode == "sync" and .ranks == 1 then "single" else .mode end;

# Of each moment of training: computing, transfer that nothing hides, waiting.
def split: .breakdown as $b
  | ($b | .data + .forward + .backward + .comm_exposed + .wait + .update) as $all
  | if $all > 0 then {compute: (($b.forward + $b.backward + $b.update) / $all),
      transfer: ($b.comm_exposed / $all), wait: ($b.wait / $all), data: ($b.data / $all)}
    else {} end;
