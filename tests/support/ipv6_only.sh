#!/bin/sh
# ipv6_only.sh COMMAND ...: runs the command in a new network namespace without IPv4, with the address fd00::7 and the
# name only.ipv6.test for it. The name both.ipv6.test has 127.0.0.1, which is not up, and ::1. Ends with 77 if no such
# namespace can be made. The namespace ends with the command.
set -e
if [ "$1" != inside ]; then
  unshare --net --mount true || exit 77
  names=$(mktemp)
  trap 'rm -f "$names"' EXIT
  printf "fd00::7 only.ipv6.test\n127.0.0.1 both.ipv6.test\n::1 both.ipv6.test\n" >"$names"
  unshare --net --mount -- "$0" inside "$names" "$@"
  exit
fi
shift
{
  mount --bind "$1" /etc/hosts &&
    mount -t sysfs sysfs /sys && # sysfs lists the interfaces of the namespace that mounted it
    ip link set lo up &&
    ip addr del 127.0.0.1/8 dev lo &&
    ip link add outside type veth peer name other &&
    ip link set other up &&
    ip -6 addr add fd00::7/64 dev outside nodad &&
    ip link set outside up
} || {
  echo "no network with IPv6 alone can be made here"
  exit 77
}
shift
exec "$@"
