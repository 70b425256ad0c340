# What the commands of `sigmahq.txt` are written with.
as() {
	[ -e "/usr/bin/$1" ] || [ -e "/usr/sbin/$1" ] || ln /usr/bin/nothing "/usr/bin/$1"
	command "$@"
}
at() {
	mkdir -p "${1%/*}"
	[ -e "$1" ] || cp /usr/bin/nothing "$1"
	"$@"
}
via() {
	mkdir -p "${1%/*}"
	[ -e "$1" ] || cp /bin/bash "$1"
	"$1" -c "$2; true" "${@:3}"
}
new() {
	mkdir -p "$(dirname "$1")"
	echo x >"$1"
}
export -f as at via new
