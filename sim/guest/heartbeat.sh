#!/bin/sh
# A process that must not notice the death of another cell: it counts, and says who it is.
count=0
while :; do
	count=$((count + 1))
	echo "demo: heartbeat pid ${BASHPID:-$$} count $count"
	sleep 0.1
done
