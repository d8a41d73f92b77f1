#!/bin/bash
# make.sh COUNT SUBNET SLOTS JOIN..., in its own namespaces (hosts.py): makes hosts h0, h1, .... JOIN is a script of
# this folder with arguments. It gives each host an interface eth0, prints "ready", and keeps the hosts until its input
# ends.
set -euo pipefail
count=$1 subnet=$2 slots=$3
shift 3

mount -t tmpfs -o mode=0755 penstock /run/netns
mkdir /run/netns/penstock
# Every host knows the names of all hosts, as with a name server. The mount is private, like the others.
cp /etc/hosts /run/netns/penstock/names
for ((i = 0; i < count; i++)); do echo "$subnet.$((10 + i)) h$i" >>/run/netns/penstock/names; done
mount --bind /run/netns/penstock/names /etc/hosts
for ((i = 0; i < count; i++)); do
  ip netns add "h$i"
  ip -n "h$i" link set lo up
  echo "$subnet.$((10 + i)) slots=$slots" >>/run/netns/penstock/hosts
done

# open_host NUMBER CONTROL: gives eth0 its address and routes. TCP uses this congestion control.
open_host() {
  ip -n "h$1" addr add "$subnet.$((10 + $1))/24" dev eth0
  ip -n "h$1" link set eth0 up
  ip -n "h$1" route replace "$subnet.0/24" dev eth0 congctl "$2"
}

# shellcheck disable=SC1090
source "$(dirname "${BASH_SOURCE[0]}")/$1" "${@:2}"
