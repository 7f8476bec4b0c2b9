#!/bin/sh
# driver.sh [NUMBER..]: the demo's job: the lines of /demo/tasks with these numbers, or all. A task
# is done when some live cell has its output; those that are not are run (again). So this script
# may be killed anywhere and started again, on the same cell or on another.
name_of() { # KIND FILE: $name
	name=$1
	IFS=/
	for part in $2; do name=$name${part:+-$part}; done
	unset IFS
}
done_on() { # NAME: $where, the first live cell that has it
	for where in /cells/*/out/"$1"; do
		[ -s "$where" ] && return
	done
	where=
	return 1
}
tasks=
number=0
while read -r kind file; do
	number=$((number + 1))
	case " $* " in "  " | *" $number "*) tasks="$tasks $kind:$file" ;; esac
done < /demo/tasks
round=0
while [ $round -lt 9 ]; do
	running=
	for task in $tasks; do
		kind=${task%%:*} file=${task#*:}
		name_of "$kind" "$file"
		done_on "$name" && continue
		echo "demo: start $name round $round"
		sh /demo/task.sh "$kind" "$file" "$name" < /dev/null &
		running="$running $!:$name"
	done
	[ -n "$running" ] || break
	for task in $running; do
		wait "${task%%:*}"
		echo "demo: end ${task#*:} status $?"
	done
	round=$((round + 1))
done
sync
missing=0
for task in $tasks; do
	name_of "${task%%:*}" "${task#*:}"
	if done_on "$name"; then echo "demo: output $where"; else missing=$((missing + 1)); fi
done
echo "demo: finished missing $missing"
