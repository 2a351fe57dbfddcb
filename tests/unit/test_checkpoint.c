/*
 * test_checkpoint.c - checkpoints and output files in a folder that other users can write: links that
 * are planted there are not followed
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "perf/bench/bench.h"
#include "tests/support/files.h"
#include "tests/support/small_checkpoint.h"
#include "tools/fresh_file.h"
#include "trainer/whole_file.h"

static char folder[64], path[96], victim[96];

static const char *name_of(const char *ending)
{
	static char name[128];

	snprintf(name, sizeof(name), "%s%s", path, ending);
	return name;
}

/* Another user's links have the names that can be foretold, and lead to a file of this user. */
static void make_folder(void)
{
	char ending[32];

	snprintf(folder, sizeof(folder), "/tmp/tutti-checkpoint-XXXXXX");
	cr_assert_not_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/file", folder);
	snprintf(victim, sizeof(victim), "%s/victim", folder);
	write_file_in(folder, "victim", "precious");
	snprintf(ending, sizeof(ending), ".%d", (int)getpid());
	cr_assert(!symlink(victim, name_of(ending)) && !symlink(victim, name_of(".tmp")));
	snprintf(ending, sizeof(ending), ".%d.tmp", (int)getpid());
	cr_assert(!symlink(victim, name_of(ending)) && !symlink(victim, path));
}

static void remove_folder(void)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -rf %s", folder);
	cr_assert_eq(system(command), 0);
}

TestSuite(checkpoint, .init = make_folder, .fini = remove_folder, .timeout = 30);

static void expect_victim_intact(void)
{
	char text[32] = "";
	struct stat st;
	FILE *f = fopen(victim, "r");

	cr_assert(f && fgets(text, sizeof(text), f));
	fclose(f);
	cr_expect_str_eq(text, "precious");
	cr_expect(!lstat(path, &st) && S_ISREG(st.st_mode), "the file replaced the link");
}

Test(checkpoint, a_checkpoint_follows_no_planted_link)
{
	cr_expect_eq(train_whole_file_check("save", path), 0, "%s", train_error());
	cr_expect_eq(save_small_checkpoint(path, 1), 0, "%s", train_error());
	expect_victim_intact();
}

Test(checkpoint, an_output_file_follows_no_planted_link)
{
	cr_expect_eq(tool_file_write(path, "{}", 2), 0);
	expect_victim_intact();
}

/* The name of a temporary file, from here on: PATH and sixteen zeros. */
static bool foretold;

ssize_t getrandom(void *to, size_t bytes, unsigned flags)
{
	if (!foretold)
		return syscall(SYS_getrandom, to, bytes, flags);
	memset(to, 0, bytes);
	return (ssize_t)bytes;
}

Test(checkpoint, a_temporary_file_is_new_even_if_its_name_was_foretold)
{
	char temporary[128] = "untouched";

	foretold = true;
	cr_assert(!symlink(victim, name_of(".0000000000000000")));
	cr_expect_null(tool_fresh_file(path, temporary, sizeof(temporary)));
	cr_expect_str_eq(temporary, "", "a caller must not remove %s", temporary);
	cr_expect_eq(tool_file_write(path, "{}", 2), -1);
	cr_expect_eq(access(name_of(".0000000000000000"), F_OK), 0);
}
