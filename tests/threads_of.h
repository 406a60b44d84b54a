/* The threads of this process, for tests of their order. */
#ifndef TESTS_THREADS_OF_H
#define TESTS_THREADS_OF_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline bool thread_sleeps(const char *id)
{
    char path[300], state = 'S'; /* of a thread that has ended since */
    snprintf(path, sizeof path, "/proc/self/task/%s/stat", id);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
        state = 'S';
    if (f)
        fclose(f);
    return state == 'S';
}

/* Whether all other threads of this process sleep. */
static inline bool others_sleep(void)
{
    bool asleep = true;
    DIR *tasks = opendir("/proc/self/task");
    cr_assert(tasks != NULL);
    for (const struct dirent *e; (e = readdir(tasks)) != NULL;)
        if (e->d_name[0] != '.' && atoi(e->d_name) != (int)syscall(SYS_gettid))
            asleep = asleep && thread_sleeps(e->d_name);
    closedir(tasks);
    return asleep;
}

/* Returns when all other threads sleep: the earlier ones wait for this one. One thread at a time
 * may call this function. */
static inline void wait_until_others_sleep(void)
{
    while (!others_sleep())
        sched_yield();
}

#endif
