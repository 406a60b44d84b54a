/* Runs the tests in sequence, each in a child process. Exits with 1 if a check fails, and with 66
 * if ThreadSanitizer reported. usage: runner [--tap=FILE] [--filter=SUITE/TEST, a glob] */
#include "criterion.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77 };

static struct plain_test *first;
static bool failed;

void plain_register(struct plain_test *test)
{
    struct plain_test **at = &first;
    while (*at && (strcmp((*at)->suite, test->suite) < 0 ||
                   (!strcmp((*at)->suite, test->suite) && strcmp((*at)->name, test->name) < 0)))
        at = &(*at)->next;
    test->next = *at;
    *at = test;
}

void plain_check(bool ok, bool fatal, const char *file, int line, const char *what,
                 const char *message, ...)
{
    if (ok)
        return;
    va_list args;
    va_start(args, message);
    fprintf(stderr, "%s:%d: not so: %s:", file, line, what);
    vfprintf(stderr, message, args);
    fputc('\n', stderr);
    va_end(args);
    failed = true;
    if (fatal)
        _exit(1);
}

void plain_skip(const char *message, ...)
{
    va_list args;
    va_start(args, message);
    vfprintf(stderr, message, args);
    fputc('\n', stderr);
    va_end(args);
    _exit(SKIPPED);
}

/* Options of the suite, which is sorted before its tests. */
static const struct plain_test *suite_of(const struct plain_test *t)
{
    const struct plain_test *s = first;
    while (strcmp(s->suite, t->suite))
        s = s->next;
    return s;
}

static int run(const struct plain_test *t)
{
    const struct plain_test *s = suite_of(t);
    void (*init)(void) = t->init || s->run ? t->init : s->init,
         (*fini)(void) = t->fini || s->run ? t->fini : s->fini;
    const pid_t child = fork();
    int status = 1;
    if (child == 0) {
        if (t->timeout > 0)
            alarm((unsigned)(20 * t->timeout)); /* the sanitizer takes its time */
        if (init)
            init();
        t->run();
        if (fini)
            fini();
        exit(failed);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return 1;
    if (t->signal)
        return !WIFSIGNALED(status) || WTERMSIG(status) != t->signal;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    const char *filter = "*";
    FILE *tap = stdout;
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--tap=", 6))
            tap = fopen(argv[i] + 6, "w");
        if (!strncmp(argv[i], "--filter=", 9))
            filter = argv[i] + 9;
    }
    if (!tap)
        return 2;
    setvbuf(tap, NULL, _IONBF, 0);
    for (const struct plain_test *t = first; t; t = t->next) {
        char name[256];
        snprintf(name, sizeof name, "%s/%s", t->suite, t->name);
        if (!t->run || fnmatch(filter, name, 0))
            continue;
        fprintf(stderr, "-- %s\n", name);
        const int status = run(t);
        bad += status != 0 && status != SKIPPED;
        fprintf(tap, "%s - %s::%s%s\n", status == 0 || status == SKIPPED ? "ok" : "not ok",
                t->suite, t->name, status == SKIPPED ? " # SKIP" : "");
        if (status && status != SKIPPED)
            fprintf(stderr, "   ended with %d\n", status);
    }
    return bad != 0;
}
