#!/bin/sh
# One task of the demo: task.sh KIND FILE OUTPUT. The output appears whole or not at all, in the
# tree of whichever cell the task runs on.
LC_ALL=C
export LC_ALL
kind=$1 file=$2 name=$3
# The host name is hiveN on cell N.
cell=$(uname -n)
cell=${cell#hive}
out=/cells/$cell/out
mkdir -p "$out" || exit
part=$out/.$name.$$
case $kind in
gzip) gzip -6 -n -c "$file" ;;
sha256) sha256sum "$file" ;;
sort) gzip -dc "$file" | tr -cs A-Za-z '\n' | sort | uniq -c ;;
awk) gzip -dc "$file" |
	awk '{ for (i = 1; i <= NF; i++) n[$i]++ } END { for (w in n) print n[w], w }' | sort ;;
*) exit 2 ;;
esac > "$part" && mv "$part" "$out/$name"
