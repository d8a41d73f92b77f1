#!/bin/bash
# Checks the layout of C and C++ files with clang-format. Names each file that it would change.
#
# Usage: tools/ci/check_format.sh          checks; ends with 1 when a file would change
#        tools/ci/check_format.sh --fix    changes them
set -eu
cd "$(dirname "$0")/../.."

formatter=${CLANG_FORMAT:-clang-format}
if ! command -v "$formatter" > /dev/null; then
  echo "check_format: $formatter is not installed; run tools/setup, or name another in CLANG_FORMAT" >&2
  exit 1
fi

# Files that git tracks or would track, so that a new file is checked before its commit. Left out are the public C
# headers, because their comments stand in columns that were made by hand, and files that switch clang-format off at
# their beginning.
list_files() {
  git ls-files -z --cached --others --exclude-standard -- '*.h' '*.hpp' '*.c' '*.cpp' '*.cu' '*.cuh' |
    while IFS= read -r -d '' file; do
      case $file in
        sdk/include/penstock/*.h | core/include/penstock/*.h) continue ;;
      esac
      if [ -f "$file" ] && ! head -n 8 "$file" | grep -q 'clang-format off'; then printf '%s\0' "$file"; fi
    done
}

case "${1:-}" in
  --fix)
    list_files | xargs -0 -r "$formatter" -i
    ;;
  "")
    if ! list_files | xargs -0 -r "$formatter" --dry-run --Werror; then
      echo "check_format: some files are laid out differently; tools/ci/check_format.sh --fix changes them" >&2
      exit 1
    fi
    ;;
  *)
    echo "check_format: unknown argument '$1', expected --fix or none" >&2
    exit 2
    ;;
esac
