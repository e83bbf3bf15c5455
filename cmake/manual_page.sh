#!/bin/bash
# A manual page out of what a program says of itself, and of its subcommands, with --help, packed: manual_page.sh PROGRAM PAGE.gz
set -euo pipefail
program=$1
exec > "$2.new"
name=$(basename "$program")
# Programs call themselves as they were called, and find no width to fit their lines to.
help() { (cd "$(dirname "$program")" && "./$name" "$@" --help < /dev/null | sed "s|\\./$name|$name|g"); }
# What roff would read as its own.
as_text() { sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\\([.']\\)/\\\\\\&\\1/"; }
# Before and after the line of usage.
about() { sed '/^Usage: /,$d' <<< "$1"; }
usage() { sed -n 's/^Usage: //p' <<< "$1"; }
details() { sed '1,/^Usage: /d' <<< "$1"; }

text=$(help)
version=$("$program" --version)
summary=$(about "$text" | tr '\n' ' ' | sed -e 's/[.] .*//' -e 's/[. ]*$//')
echo ".TH ${name^^} 1 \"\" \"weft ${version##* }\" \"Weft\""
echo ".SH NAME"
echo "$name \\- $summary"
echo ".SH SYNOPSIS"
usage "$text" | as_text
echo ".SH DESCRIPTION"
about "$text" | as_text
# print_details TEXT: headings at the margin become sections of the page.
print_details() {
  echo ".nf"
  details "$1" | as_text | sed -E 's/^([A-Za-z][^:]*):$/.fi\n.SS "\1"\n.nf/' | cat -s
  echo ".fi"
}
echo ".SH OPTIONS"
print_details "$text"
for command in $(sed -n '/^Subcommands:/,$ { s/^  \([a-z]*\) .*/\1/p }' <<< "$text"); do
  text=$(help "$command")
  echo ".SH \"${name^^} ${command^^}\""
  about "$text" | as_text
  echo ".PP"
  usage "$text" | as_text
  print_details "$text"
done
echo ".SH SEE ALSO"
echo "/usr/share/doc/weft"
exec >&-
gzip -9n < "$2.new" > "$2"
rm "$2.new"
