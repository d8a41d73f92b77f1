#!/bin/sh
# bare.sh COMMAND ...: runs the command in a system without Open MPI, UCX, fmt and spdlog, but with a foreign mpirun
# that starts nothing. Ends with 77 if no mount namespace can be made. The namespace ends with the command.
set -e
if [ "$1" != inside ]; then
  unshare --mount true 2>/dev/null || exit 77
  nothing=$(mktemp -d)
  trap 'rm -rf "$nothing"' EXIT
  mkdir "$nothing/folder"
  : >"$nothing/file"
  printf '#!/bin/sh\necho a foreign mpirun >&2\nexit 1\n' >"$nothing/mpirun"
  chmod +x "$nothing/mpirun"
  unshare --mount -- "$0" inside "$nothing" "$@" &
  child=$!
  trap 'kill -TERM $child 2>/dev/null' TERM INT
  status=0
  wait $child || status=$?
  wait $child 2>/dev/null || [ $status -lt 128 ] || status=$?
  exit $status
fi
nothing=$2
shift 2
for folder in /lib /usr/lib /usr/lib64 /usr/local/lib /lib/x86_64-linux-gnu; do
  for name in mpi open-rte open-pal pmix ucp ucs uct ucm fmt spdlog; do
    for file in "$folder/lib$name".so* "$folder/lib${name}_"*.so*; do
      [ ! -f "$file" ] || mount --bind "$nothing/file" "$(realpath "$file")"
    done
  done
done
for folder in /usr/include/fmt /usr/include/spdlog /usr/include/ucp /usr/include/uct /usr/lib/x86_64-linux-gnu/openmpi; do
  [ ! -d "$folder" ] || mount --bind "$nothing/folder" "$folder"
done
mpirun=$(command -v mpirun || true)
[ -z "$mpirun" ] || mount --bind "$nothing/mpirun" "$(realpath "$mpirun")"
exec "$@"
