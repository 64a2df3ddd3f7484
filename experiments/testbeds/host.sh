#!/bin/sh
# The first process of a host of testbed `local`, in mount, PID, UTS and network namespaces of its own: a root of its own over that of the machine, then sshd.
#
#   host.sh DIRECTORY NAME [bind:PATH | reach:PATH | disk:BYTES:PATH]...
#
# DIRECTORY has what the host writes (upper) and what it is given (given/). bind: a path on another file system than /, which the host sees, too.
# reach: a path that users other than root may go into; the machine's own directories keep their modes.
# disk: a file system of so many bytes.
set -eu
directory=$1 name=$2
shift 2
root=$directory/root scaffold=$directory/scaffold

mount --make-rprivate /
hostname "$name"

# An overlay over / may not have its upper directory on the file system of /: so its lower layer is another overlay, over / and an empty directory.
mount -t tmpfs -o mode=755 scaffold "$scaffold"
mkdir "$scaffold/empty" "$scaffold/machine"
mount -t overlay -o "lowerdir=/:$scaffold/empty" machine "$scaffold/machine"
mount -t overlay -o "lowerdir=$scaffold/machine,upperdir=$directory/upper,workdir=$directory/work" host "$root"

mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t tmpfs -o mode=755 run "$root/run"
mount -t tmpfs -o mode=755 dev "$root/dev"
for device in null zero full random urandom tty; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm" "$root/run/sshd" "$root/run/lock"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s /proc/self/fd/0 "$root/dev/stdin"
ln -s /proc/self/fd/1 "$root/dev/stdout"
ln -s /proc/self/fd/2 "$root/dev/stderr"
for item in "$@"; do
    path=${item#*:}
    case $item in
    bind:*)
        mkdir -p "$root$path"
        mount --bind "$path" "$root$path"
        mount -o remount,bind,ro "$root$path"
        ;;
    reach:*)
        while [ "$path" != / ]; do
            path=$(dirname "$path")
            chmod o+x "$root$path"
        done
        ;;
    esac
done

cp "$directory/given/hosts" "$root/etc/hosts"
# A shell runs it for every command that comes over SSH, and what some people have in there takes ten times as long as the command.
: >"$root$(getent passwd root | cut -d: -f6)/.bashrc"
echo "$name" >"$root/etc/hostname"
rm -rf "$root/etc/ares-testbed"
cp -r "$directory/given" "$root/etc/ares-testbed"
chmod -R go= "$root/etc/ares-testbed"
sed -i 's/^root:![^:]*:/root:*:/' "$root/etc/shadow" # sshd lets nobody into an account that is locked, with a key either

cd "$root"
pivot_root . .
umount -l .
cd /
for item in "$@"; do
    case $item in disk:*)
        item=${item#disk:}
        mkdir -p "${item#*:}"
        mount -t tmpfs -o "size=${item%%:*},mode=755" disk "${item#*:}"
        ;;
    esac
done
exec /usr/sbin/sshd -D -e -f /etc/ares-testbed/sshd_config
