# Runs a command beside a Slurm of two nodes, in namespaces that this script begins and ends:
#   unshare --mount --uts --ipc --net --pid --fork --mount-proc bash slurm.sh FOLDER COMMAND...
set -eu
folder=$1
shift
PATH=$PATH:/usr/sbin

# Nothing of the machine's own Slurm is seen or touched.
mount -t tmpfs none /run
hostname slurm-test
# Names are looked up only where there is an address beside loopback's.
ip link set lo up
ip address add 192.0.2.1/32 dev lo
echo '192.0.2.1 slurm-test' > "$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts

install -d -m 755 /run/munge
head -c 1024 /dev/urandom > /run/munge/key
chmod 400 /run/munge/key
munged --force --key-file=/run/munge/key --seed-file=/run/munge/seed \
    --pid-file=/run/munge/pid --log-file="$folder/munged.log"

mkdir "$folder/state"
cat > "$folder/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=slurm-test
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=$folder/state
SlurmctldPidFile=/run/slurmctld.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdPidFile=/run/slurmd-%n.pid
SlurmdLogFile=$folder/slurmd-%n.log
SlurmdSpoolDir=/run/slurmd-%n
TmpFS=$folder
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MailProg=/bin/true
NodeName=one NodeHostname=slurm-test Port=6820 CPUs=8
NodeName=two NodeHostname=slurm-test Port=6821 CPUs=8
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
printf 'CgroupPlugin=cgroup/v1\nIgnoreSystemd=yes\n' > "$folder/cgroup.conf"
export SLURM_CONF=$folder/slurm.conf
slurmctld
slurmd -N one
slurmd -N two
for _ in $(seq 100); do
    [ "$(sinfo --noheader --format=%T 2> /dev/null)" = idle ] && exec "$@"
    sleep 0.2
done
echo 'Slurm has not started' >&2
tail -n 5 "$folder"/*.log >&2
exit 1
