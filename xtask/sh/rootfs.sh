#!/bin/sh
# The root file system, in two steps that need no root and touch nothing outside their folders.
#
#   rootfs.sh tree DIR LOCK PACKAGE..    DIR/tree: Debian's riscv64 packages unpacked with all they
#                                        depend on; DIR/resolved: one "file size hash" per package
#   rootfs.sh image TREE OVERLAY OUT MB  an ext2 image of TREE with OVERLAY laid over it
#
# tree: a private apt root in DIR takes the mirror, proxy and certificates of this machine's own
# apt configuration. Signatures are checked with Debian's keyring, packages against the lists. No
# maintainer script runs (it would need the guest). A difference from LOCK, the packages this
# version was tested with, is reported and used all the same.
# image: the same TREE and OVERLAY give the same bytes: owners, times and identifiers are fixed.
set -eu
LC_ALL=C; export LC_ALL
PATH=$PATH:/usr/sbin:/sbin; export PATH
umask 022
ARCH=riscv64 SUITE=trixie
say() { printf 'hive: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# The Debian archive this machine's apt uses: from its lists, or, if never fetched, its files.
mirror() {
  found=$(apt-get indextargets --format '$(REPO_URI)|$(LABEL)' 'Created-By: Packages' 2>/dev/null |
    sed -n 's/|Debian$//p' | head -n 1)
  [ -n "$found" ] || found=$(
    { sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/\2/p' \
        /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null
      sed -n 's/^URIs: *\([^ ]*\).*/\1/p' /etc/apt/sources.list.d/*.sources 2>/dev/null; } |
    grep '/debian/\{0,1\}$' | head -n 1)
  printf '%s' "$found"
}

tree() {
  dir=$1 lock=$2; shift 2
  for tool in apt-get apt-config dpkg-deb; do
    command -v $tool >/dev/null ||
      die "no $tool here: build the image on Debian and pass it with --rootfs"
  done
  mirror=$(mirror)
  [ -n "$mirror" ] || die "no Debian archive in this machine's apt configuration: add one, or pass an image with --rootfs"
  keys=$(ls /usr/share/keyrings/debian-archive-keyring.* 2>/dev/null | head -n 1)
  [ -n "$keys" ] || die "Debian's keys are missing: install the package debian-archive-keyring"
  say "root file system: fetching $SUITE/$ARCH packages (once)"
  mkdir -p "$dir/apt/none" "$dir/apt/lists/partial" "$dir/apt/archives/partial"
  : > "$dir/apt/status"
  echo "deb [arch=$ARCH signed-by=$keys] $mirror $SUITE main" > "$dir/apt/sources.list"
  # Read first, so that of the machine's own configuration only Acquire:: (proxy, certificates,
  # timeouts) is in force; an empty status file makes apt resolve the whole closure.
  { apt-config dump | grep '^Acquire::[A-Za-z0-9:_-]* "..*";$' || :
    for item in Etc::main=none Etc::parts=none Etc::sourcelist=sources.list Etc::sourceparts=none \
        Etc::preferences=none/x Etc::preferencesparts=none State=. State::lists=lists \
        State::status=status Cache=. Cache::archives=archives Log=.; do
      echo "Dir::${item%=*} \"$dir/apt/${item#*=}\";"
    done
    cat <<END
APT::Architecture "$ARCH"; APT::Architectures { "$ARCH"; };
APT::Install-Recommends "false"; APT::Sandbox::User ""; Debug::NoLocking "true";
Acquire::Languages "none";
END
  } > "$dir/apt/apt.conf"
  APT_CONFIG=$dir/apt/apt.conf; export APT_CONFIG
  apt-get -qq update || die "apt cannot fetch the lists of $SUITE/$ARCH: mend the network, or pass an image with --rootfs"
  set -- base-files base-passwd libc-bin "$@"
  apt-get -qq -y --print-uris install "$@" | awk '{print $2, $3, $4}' | sort > "$dir/resolved.new"
  [ -s "$dir/resolved.new" ] || die "$SUITE/$ARCH cannot satisfy: $*"
  if [ -f "$lock" ] && ! cmp -s "$lock" "$dir/resolved.new"; then
    say "warning: $(diff "$lock" "$dir/resolved.new" | grep -c '^>') packages are newer in the archive than in $(basename "$lock"): the image's hash differs from the tested one"
  fi
  apt-get -qq -y --download-only install "$@" >&2 || die "apt cannot fetch the packages: mend the network, or pass an image with --rootfs"
  rm -rf "$dir/tree"; mkdir -p "$dir/tree"
  for link in bin sbin lib; do mkdir -p "$dir/tree/usr/$link"; ln -s "usr/$link" "$dir/tree/$link"; done
  while read -r deb _; do
    dpkg-deb --fsys-tarfile "$dir/apt/archives/$deb" |
      tar -x -p --no-same-owner --keep-directory-symlink -C "$dir/tree" -f -
  done < "$dir/resolved.new"
  chmod -R u+rwX "$dir/tree"
  rm -rf "$dir/apt"
  mv "$dir/resolved.new" "$dir/resolved"
}

image() {
  tree=$1 overlay=$2 out=$3 mb=$4
  command -v mke2fs >/dev/null && command -v debugfs >/dev/null || die "no mke2fs here: install the package e2fsprogs"
  work=$out.work
  rm -rf "$work" "$out"; mkdir -p "$(dirname "$work")"
  cp -a "$tree" "$work"
  cp -RP "$overlay/." "$work/"
  # What maintainer scripts would have left, as far as programs need it.
  etc=$work/etc
  for name in passwd group; do
    [ -e "$etc/$name" ] || cp "$work/usr/share/base-passwd/$name.master" "$etc/$name"
  done
  [ -e "$etc/profile" ] || cp "$work/usr/share/base-files/profile" "$etc/profile"
  choose() { [ -e "$work/usr/bin/$1" ] || [ ! -e "$work/usr/bin/$2" ] || ln -s "$2" "$work/usr/bin/$1"; }
  choose sh dash; choose awk mawk; choose which which.debianutils; choose pager more
  choose vi busybox
  epoch=1700000000
  E2FSPROGS_FAKE_TIME=$epoch; export E2FSPROGS_FAKE_TIME
  find "$work" -exec touch -h -d "@$epoch" {} +
  uuid=00000000-0000-4000-8000-00000000000
  # Blocks of one page and no feature beyond plain ext2, so that any ext2 driver reads it.
  mke2fs -q -t ext2 -b 4096 -I 128 -m 0 -O none,filetype,sparse_super -L hiveroot -U ${uuid}1 \
    -E root_owner=0:0,hash_seed=${uuid}2,nodiscard -d "$work" "$out" "${mb}M" >"$out.log" 2>&1 ||
    die "mke2fs: $(tail -n 1 "$out.log")"
  # mke2fs copies owners, atime (which find moved) and ctime (which nothing can set): fix them.
  debugfs -R 'stats -h' "$out" 2>/dev/null |
    awk -v t=$epoch '/^Inode count:/{all=$3} /^Free inodes:/{free=$3}
      END { for (i = 2; i <= all - free; i++) if (i == 2 || i >= 11)
        printf "sif <%d> ctime @%s\nsif <%d> atime @%s\nsif <%d> uid 0\nsif <%d> gid 0\n",
          i, t, i, t, i, i }' |
    debugfs -w -f - "$out" >/dev/null 2>&1
  e2fsck -fn "$out" >"$out.log" 2>&1 || die "the new image is not clean: $(tail -n 1 "$out.log")"
  chmod 444 "$out"
  rm -rf "$work" "$out.log"
}

step=$1; shift
"$step" "$@"
