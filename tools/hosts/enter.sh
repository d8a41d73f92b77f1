#!/bin/bash
# enter.sh [-OPTION...] ADDRESS COMMAND...: runs a line of shell on the host with that address, as ssh would. mpirun
# calls it like ssh. Every host has its own name, so that hosts do not look equal.
while [[ $1 == -* ]]; do shift; done
number=$((${1##*.} - 10))
shift
exec ip netns exec "h$number" unshare --uts -- /bin/sh -c "hostname h$number; $*"
