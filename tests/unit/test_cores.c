/*
 * test_cores.c - the number of processors of a rank: quotas of cgroups, from /proc and /sys
 *
 * Every test makes a folder with the layout of the root of a machine.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "comm/comm.h"
#include "tests/support/files.h"

static char root[64];

static void write_file(const char *name, const char *text)
{
	write_file_in(root, name, text);
}

static void write_group(const char *folder, const char *quota, const char *period)
{
	char name[256];

	snprintf(name, sizeof(name), "sys/fs/cgroup/%s/cpu.cfs_quota_us", folder);
	write_file(name, quota);
	snprintf(name, sizeof(name), "sys/fs/cgroup/%s/cpu.cfs_period_us", folder);
	write_file(name, period);
}

static void make_root(void)
{
	snprintf(root, sizeof(root), "/tmp/tutti-cores-XXXXXX");
	cr_assert_not_null(mkdtemp(root));
}

static void remove_root(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	cr_assert_eq(system(command), 0);
}

TestSuite(cores, .init = make_root, .fini = remove_root, .timeout = 20);

Test(cores, missing_or_invalid_cgroup_files_mean_no_quota)
{
	cr_expect_eq(tt_cores_quota(root), 0);
	write_file("proc/self/cgroup", "nonsense\n0:\n:::\n0::/not/there\n");
	cr_expect_eq(tt_cores_quota(root), 0);
}

Test(cores, the_smallest_quota_of_the_group_and_its_ancestors_applies)
{
	write_file("proc/self/cgroup", "0::/users/me/job\n");
	write_file("sys/fs/cgroup/users/me/job/cpu.max", "max 100000\n");
	cr_expect_eq(tt_cores_quota(root), 0);
	write_file("sys/fs/cgroup/users/cpu.max", "350000 100000\n");
	cr_expect_eq(tt_cores_quota(root), 4, "3.5 cores do not round up to 4");
	write_file("sys/fs/cgroup/users/me/cpu.max", "100000 50000\n");
	cr_expect_eq(tt_cores_quota(root), 2);
	write_file("sys/fs/cgroup/users/me/job/cpu.max", "800000 100000\n");
	cr_expect_eq(tt_cores_quota(root), 2);
	write_file("sys/fs/cgroup/users/me/job/cpu.max", "10000 100000\n");
	cr_expect_eq(tt_cores_quota(root), 1);
}

Test(cores, the_quota_of_a_sibling_group_does_not_apply)
{
	write_file("proc/self/cgroup", "0::/users/me\n");
	write_file("sys/fs/cgroup/users/you/cpu.max", "100000 100000\n");
	cr_expect_eq(tt_cores_quota(root), 0);
}

Test(cores, in_a_container_the_quota_of_the_mounted_root_applies)
{
	write_file("proc/self/cgroup", "0::/\n");
	write_file("sys/fs/cgroup/cpu.max", "200000 100000\n");
	cr_expect_eq(tt_cores_quota(root), 2);
	write_file("proc/self/cgroup", "0::/machine/of/the/host\n");
	cr_expect_eq(tt_cores_quota(root), 2);
}

Test(cores, cgroups_of_version_1_are_read_at_their_mount_point)
{
	write_file("proc/self/cgroup",
		   "12:cpuset:/\n4:cpu,cpuacct:/docker/a\n1:name=systemd:/docker/a\n0::/\n");
	write_group("cpuset", "100000", "100000");
	write_group("cpu,cpuacct/docker/a", "-1", "100000");
	cr_expect_eq(tt_cores_quota(root), 0);
	write_group("cpu,cpuacct/docker", "600000", "100000");
	cr_expect_eq(tt_cores_quota(root), 6);
	write_group("cpu,cpuacct/docker/a", "150000", "100000");
	cr_expect_eq(tt_cores_quota(root), 2);
}

Test(cores, a_period_of_0_is_no_quota)
{
	write_file("proc/self/cgroup", "4:cpu:/\n0::/\n");
	write_group("cpu", "100000", "0");
	write_file("sys/fs/cgroup/cpu.max", "100000 0\n");
	cr_expect_eq(tt_cores_quota(root), 0);
}

static int count_both(const struct tt_cores cores[2])
{
	struct tt_cores all = { 0 };

	for (int i = 0; i < 2; i++)
		tt_cores_add(&all, &cores[i]);
	return tt_cores_count(&all);
}

Test(cores, the_quota_of_one_rank_limits_all_ranks_of_its_host)
{
	struct tt_cores cores[2] = { { .mask = { 0xf0 } }, { .mask = { 0x0f } } };

	cr_expect_eq(count_both(cores), 8);
	cores[1].quota = 3;
	cr_expect_eq(count_both(cores), 3);
	cores[0].quota = 5;
	cr_expect_eq(count_both(cores), 3);
	cores[0].quota = cores[1].quota = UINT32_MAX; /* no number of cores is negative */
	cr_expect_eq(count_both(cores), 8);
}
