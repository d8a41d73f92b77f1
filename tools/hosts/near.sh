# shellcheck shell=bash disable=SC2154
# near.sh RATE BURST, sourced by make.sh: hosts on one bridge, each link shaped at both ends.
rate=$1 burst=$2
ip netns add switch
ip -n switch link add bridge0 type bridge
ip -n switch link set bridge0 up
for ((i = 0; i < count; i++)); do
  ip link add eth0 netns "h$i" type veth peer name "port$i" netns switch
  ip -n switch link set "port$i" master bridge0 up
  # Both ends: the host's sending side, and the switch's side towards it.
  for end in "h$i eth0" "switch port$i"; do
    ip netns exec "${end% *}" tc qdisc add dev "${end#* }" root tbf rate "$rate" burst "$burst" latency 50ms
  done
  open_host "$i" cubic
done
echo ready
# As the first process here the shell also adopts processes without a parent.
while read -r _; do :; done
