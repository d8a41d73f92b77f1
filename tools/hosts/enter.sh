#!/bin/bash
# enter.sh [-OPTION...] ADDRESS COMMAND...: runs a line of shell on the host of that address, as ssh would; mpirun calls
# it so. Every host has a name of its own, so that no two seem the same.
while [[ $1 == -* ]]; do shift; done
number=$((${1##*.} - 10))
shift
exec ip netns exec "h$number" unshare --uts -- /bin/sh -c "hostname h$number; $*"
