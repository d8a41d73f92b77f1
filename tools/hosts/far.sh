# shellcheck shell=bash disable=SC2154
# far.sh ROUTER SEED CONTROL, sourced by make.sh: every host's eth0 is a TUN device of the router, which says "ready".
router=$1 seed=$2 control=$3
known=/proc/sys/net/ipv4/tcp_available_congestion_control
if ! grep -qw -- "$control" "$known"; then
  echo "this kernel's TCP has no control of congestion named '$control', only $(<"$known"); modprobe tcp_$control may bring it"
  exit 1
fi
for ((i = 0; i < count; i++)); do
  ip -n "h$i" tuntap add dev eth0 mode tun
  # Packets that TCP sends at once wait here until the router looks, and must not be lost before its queue.
  ip -n "h$i" link set eth0 txqueuelen 10000
  open_host "$i" "$control"
done
# The router runs as a child. The shell is the first process here and waits for it, so the shell also adopts processes
# without a parent.
"$router" "$count" "$seed" "$subnet"
