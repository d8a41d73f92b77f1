#!/bin/bash
# make.sh COUNT RATE BURST SUBNET SLOTS, in namespaces of its own (hosts.py): makes hosts h0, h1, ... joined by a bridge, says
# "ready", and holds them until its input ends.
set -euo pipefail
count=$1 rate=$2 burst=$3 subnet=$4 slots=$5

mount -t tmpfs -o mode=0755 penstock /run/netns
mkdir /run/netns/penstock
# Every host knows all by name, as it would by a name server. The mount is private, like the rest.
cp /etc/hosts /run/netns/penstock/names
for ((i = 0; i < count; i++)); do echo "$subnet.$((10 + i)) h$i" >>/run/netns/penstock/names; done
mount --bind /run/netns/penstock/names /etc/hosts
ip netns add switch
ip -n switch link add bridge0 type bridge
ip -n switch link set bridge0 up
for ((i = 0; i < count; i++)); do
  ip netns add "h$i"
  ip -n "h$i" link set lo up
  ip link add eth0 netns "h$i" type veth peer name "port$i" netns switch
  ip -n switch link set "port$i" master bridge0 up
  ip -n "h$i" addr add "$subnet.$((10 + i))/24" dev eth0
  ip -n "h$i" link set eth0 up
  # Both ends: the host's sending side, and the switch's side towards it.
  for end in "h$i eth0" "switch port$i"; do
    ip netns exec "${end% *}" tc qdisc add dev "${end#* }" root tbf rate "$rate" burst "$burst" latency 50ms
  done
  ip -n "h$i" route replace "$subnet.0/24" dev eth0 congctl cubic
  echo "$subnet.$((10 + i)) slots=$slots" >>/run/netns/penstock/hosts
done
echo ready
# As the first process here it also takes in those whose parents are gone.
while read -r _; do :; done
