# What administrators, developers and the system itself do every day, in a container.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
export DEBIAN_FRONTEND=noninteractive GIT_CONFIG_GLOBAL=/root/gitconfig GIT_CONFIG_NOSYSTEM=1
rm -rf /usual && mkdir /usual && cd /usual

# A package of a service, its upgrade, and its removal.
package() {
	tree=package-$1
	mkdir -p "$tree/DEBIAN" "$tree/etc/cron.d" "$tree/etc/init.d" "$tree/etc/pam.d" "$tree/etc/profile.d" "$tree/etc/sudoers.d" \
		"$tree/lib/systemd/system" "$tree/usr/bin" "$tree/usr/lib/python3/dist-packages" "$tree/usr/local/share/ca-certificates"
	printf 'Package: usual\nVersion: %s\nArchitecture: all\nMaintainer: tests <tests@example.org>\nDescription: tests\n' "$1" \
		>"$tree/DEBIAN/control"
	cat >"$tree/DEBIAN/postinst" <<-'SCRIPT'
		#!/bin/sh
		set -e
		trap 'exit 1' INT TERM
		id -u usual >/dev/null 2>&1 || useradd --system --home /var/lib/usual --create-home --shell /usr/sbin/nologin usual
		chown usual: /var/lib/usual
		chmod 750 /var/lib/usual
		deb-systemd-helper enable usual.service >/dev/null 2>&1 || true
		update-alternatives --install /usr/bin/usually usually /usr/bin/usual 10
		ldconfig
	SCRIPT
	printf '#!/bin/sh\nset -e\n[ "$1" != purge ] || userdel --remove usual >/dev/null 2>&1 || true\n' >"$tree/DEBIAN/postrm"
	printf '#!/bin/sh\nset -e\nsystemctl stop rsyslog.service 2>/dev/null || true\n' >"$tree/DEBIAN/prerm"
	chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/postrm" "$tree/DEBIAN/prerm"
	echo '17 * * * * root /usr/bin/usual' >"$tree/etc/cron.d/usual"
	printf '#!/bin/sh\necho started\n' >"$tree/etc/init.d/usual"
	echo 'auth required pam_unix.so' >"$tree/etc/pam.d/usual"
	echo 'export USUAL=1' >"$tree/etc/profile.d/usual.sh"
	echo 'usual ALL=(ALL) NOPASSWD: /usr/bin/true' >"$tree/etc/sudoers.d/usual"
	printf '[Service]\nExecStart=/usr/bin/usual\n[Install]\nWantedBy=multi-user.target\n' >"$tree/lib/systemd/system/usual.service"
	printf '#!/bin/sh\necho version %s\n' "$1" >"$tree/usr/bin/usual"
	cp /usr/bin/chsh "$tree/usr/bin/usual-setuid"
	chmod 4755 "$tree/usr/bin/usual-setuid"
	chmod 755 "$tree/usr/bin/usual" "$tree/etc/init.d/usual"
	echo 'import os' >"$tree/usr/lib/python3/dist-packages/usual.pth"
	dpkg-deb --root-owner-group --build "$tree" "usual-$1.deb"
}
package 1
package 2
for version in 1 2; do dpkg -i "usual-$version.deb"; done
dpkg -V usual || true
dpkg -s usual
usual
dpkg -P usual

# Accounts, and their login shells.
groupadd staffers
useradd --create-home --shell /bin/bash --groups staffers maria
echo maria:correct-horse | chpasswd
usermod --comment 'Maria M.' maria
chage -M 90 maria
su --login maria -c 'id; ls -la; umask; echo hello >note; mkdir -p .ssh .config; history | tail'
su --login maria -c 'crontab -l' || true
su --login maria -c 'ps aux | head -3; df -h . ; uptime; cat note; vi -es -c wq note </dev/null || true'
passwd --status maria
grep maria /etc/passwd
su --login maria -c 'tar -czf home.tar.gz note && rm home.tar.gz'
userdel --remove maria

# A repository of sources, and a build.
git config --global user.email tests@example.org
git config --global user.name Tests
git init --quiet --initial-branch main project
cd project
mkdir src
printf '#include <stdio.h>\nint answer(void) { return 42; }\n' >src/answer.c
printf '#include <stdio.h>\nint answer(void);\nint main(void) { printf("%%d\\n", answer()); return 0; }\n' >src/main.c
printf 'CFLAGS = -O1 -Wall\nall: answer\nanswer: src/main.o src/answer.o\n\t$(CC) -o $@ $^\ninstall: answer\n' >Makefile
printf '\tinstall -D -m 755 answer $(DESTDIR)/usr/local/bin/answer\nclean:\n\trm -f answer src/*.o\ncheck: answer\n\t./answer | grep 42\n' >>Makefile
printf '#!/bin/sh\ntrap "rm -f conftest*" EXIT\necho "int main(void){return 0;}" >conftest.c\n${CC:-cc} -o conftest conftest.c && ./conftest\nuname -s\n' >configure
chmod +x configure
git add . && git commit --quiet -m 'first'
./configure
make && make check && make install && make clean
printf 'int answer(void) { return 43 - 1; }\n' >src/answer.c
git commit --quiet -a -m 'second'
git switch --quiet -c topic && git switch --quiet main && git merge --quiet topic
cd ..
git clone --quiet project clone
git -C clone log --oneline --stat
git -C clone gc --quiet
patch=$(git -C project format-patch -1 --stdout)
echo "$patch" | git -C clone apply --check --reverse
tar -C clone -cJf release.tar.xz .
python=$(command -v /usr/bin/python3 || true)
[ -z "$python" ] || "$python" -c 'import json, base64; print(json.dumps({"a": 1}))'
[ -z "$python" ] || "$python" -m compileall -q clone
[ -z "$python" ] || "$python" -c 'exec(compile("import socket; socket.socket()", "setup.py", "exec"))'

# Jobs of cron: those of this system, a backup, and the rotation of logs.
# This one waits for a random time, and then for servers.
rm -f /etc/cron.daily/apt-compat
run-parts --report /etc/cron.daily || true
mkdir -p /var/backups /var/log
tar -czf /var/backups/etc.tar.gz /etc /home
find /var/backups -mtime +30 -delete
find /usr/bin -xdev -perm -4000 -type f >/var/backups/setuid.new
sha256sum /var/backups/etc.tar.gz | base64 >/var/backups/sum
printf '/var/log/auth.log /var/log/syslog /var/log/messages {\n rotate 2\n compress\n missingok\n create 640 root adm\n su root adm\n' >/etc/logrotate.d/usual
printf ' postrotate\n  systemctl kill -s HUP rsyslog.service || true\n endscript\n}\n' >>/etc/logrotate.d/usual
chmod 644 /etc/logrotate.d/usual
for log in auth.log syslog messages application.log; do echo line >"/var/log/$log"; done
chmod 755 /var/log
logrotate --force --state /var/lib/logrotate-usual /etc/logrotate.d/usual
savelog -q -c 3 /var/log/application.log
find /tmp -xdev -name 'usual-*' -mtime +3 -exec rm -f {} +

# The start of a service, and the work of its administrator.
cat >/usr/local/sbin/usual-service <<'SCRIPT'
#!/bin/sh
exec sleep 60
SCRIPT
chmod 755 /usr/local/sbin/usual-service
printf '[Unit]\nDescription=Usual\n[Service]\nExecStart=/usr/local/sbin/usual-service\n' >/etc/systemd/system/own.service
systemd-analyze verify /etc/systemd/system/own.service || true
systemd-tmpfiles --create --prefix=/run/usual || true
systemd-sysusers --dry-run || true
start-stop-daemon --start --background --make-pidfile --pidfile /run/usual.pid --chuid www-data --exec /usr/local/sbin/usual-service
cat /proc/sys/kernel/hostname /etc/os-release /etc/resolv.conf
ps -ef; ss -tlnp || true; ip address; df -h; free; lscpu
bash -c '</dev/tcp/127.0.0.1/5432' || true
auditctl -l >/dev/null || true
systemctl restart rsyslog.service || true
systemd-run --user sort /tmp/list || true
start-stop-daemon --stop --pidfile /run/usual.pid --retry 2 || true
sed -i 's/^#Port 22$/Port 22/' /etc/ssh/sshd_config || true
echo '127.0.0.1 build.example.org' >>/etc/hosts
printf 'net.ipv4.ip_forward = 0\n' >/etc/sysctl.d/60-usual.conf
sysctl --quiet --load /etc/sysctl.d/60-usual.conf || true
echo "alias ll='ls -l'" >>/root/.bashrc
mkdir -p /root/.ssh
ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_usual
cat /root/.ssh/id_usual.pub >>/root/.ssh/authorized_keys
ssh-keygen -l -f /root/.ssh/id_usual.pub
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=usual -keyout own.key -out own.crt
cp own.crt /usr/local/share/ca-certificates/own.crt
update-ca-certificates || true
dd if=/dev/zero of=swapfile bs=64k count=4
chmod 600 swapfile && mkswap swapfile
mkdir shared && chmod 1777 shared
mktemp -d /tmp/usual-XXXXXX
chmod u+s,g-s answer 2>/dev/null || true
apt-config dump >/dev/null || true
apt-cache policy dpkg >/dev/null || true
update-alternatives --display editor || true
find /etc/ssl -newer own.key -type f | xargs -r ls -l
grep -l usual /etc/logrotate.d/* /etc/ssh/sshd_config || true
echo done
