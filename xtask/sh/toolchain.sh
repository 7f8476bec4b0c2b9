#!/bin/sh
# toolchain.sh PREFIX [PACKAGE..] - unpacks Debian's newest Rust (rustc-web with its libraries and
# rust-web-src; further PACKAGEs, such as cargo-web or lld, with the libraries they need and this
# machine lacks) under PREFIX. Nothing is installed: these packages conflict with other Debian Rust
# packages, so they are only downloaded (by this machine's apt, from its own archive) and unpacked.
# Needs apt-get, apt-cache, dpkg; no root, unless apt's package lists were never fetched.
# PREFIX/bin holds what to call. Done once: PREFIX/packages lists what is there and is written last.
set -eu
LC_ALL=C; export LC_ALL
P=$1; shift
say() { printf 'hive: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }
for tool in apt-get apt-cache dpkg dpkg-query; do
  command -v $tool >/dev/null || die "no $tool here: install Rust 1.95 or later by rustup, with 'rustup target add riscv64gc-unknown-none-elf'"
done
known() { apt-cache show --no-all-versions "$1" >/dev/null 2>&1; }
if ! known rustc-web; then
  [ "$(id -u)" = 0 ] || die "apt knows no package rustc-web: run 'apt-get update' as root, or install a rustup toolchain with target riscv64gc-unknown-none-elf"
  say "fetching apt's package lists"
  apt-get -qq update || die "apt-get update failed: mend this machine's apt configuration or network"
  known rustc-web || die "this Debian release has no package rustc-web: install a rustup toolchain with target riscv64gc-unknown-none-elf"
fi
installed() { [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = "ii " ]; }
# The closure over library packages that are not installed here; of alternatives, the first. Other
# packages are left out: they are compilers, which the host has by other means.
seen=" "
walk() {
  case $seen in *" $1 "*) return 0;; esac
  seen="$seen$1 "
  for dep in $(apt-cache depends "$1" |
      awk '/^ *[|]?Depends:/ { if (!more) print $2; more = $1 ~ /^[|]/ }'); do
    dep=${dep%%:*}
    case $dep in
      libstd-rust-web*) walk "$dep";;
      lib*-dev|libc-dev) ;;
      lib*|lld*) installed "$dep" || walk "$dep";;
    esac
  done
}
for p in rustc-web rust-web-src "$@"; do walk "$p"; done
wanted=$(printf '%s\n' $seen | sort)
[ "$(cat "$P/packages" 2>/dev/null)" != "$wanted" ] || exit 0
say "unpacking Debian's Rust under $(basename "$(dirname "$P")")/$(basename "$P") (nothing is installed):" $wanted
rm -rf "$P.new"; mkdir -p "$P.new/deb"
( cd "$P.new/deb" && apt-get -qq -o APT::Sandbox::User= download $wanted ) ||
  die "apt could not download these packages: run 'apt-get update' as root, or mend the network"
for deb in "$P.new"/deb/*.deb; do dpkg -x "$deb" "$P.new"; done
rm -rf "$P.new/deb" "$P.new/usr/share" "$P.new"/usr/src/*/src "$P.new"/usr/src/*/compiler
# PREFIX/bin/NAME runs usr/bin/NAME with the prefix's libraries, and changes no one else's.
lib=$(basename "$(dirname "$(ls "$P.new"/usr/lib/*/librustc_driver-*.so)")")
mkdir "$P.new/bin"
for exe in "$P.new"/usr/bin/*; do
  name=$(basename "$exe")
  cat > "$P.new/bin/$name" <<EOF
#!/bin/sh
here=\${0%/*}/..
LD_LIBRARY_PATH=\$here/usr/lib/$lib\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
exec "\$here/usr/bin/$name" "\$@"
EOF
  chmod +x "$P.new/bin/$name"
done
printf '%s\n' "$wanted" > "$P.new/packages"
rm -rf "$P"; mv "$P.new" "$P"
