/* weft: finds the verb, reads its arguments, runs it, and turns its status into an exit status:
 * 0 done, 1 failed, 2 wrong usage, 130 stopped by the user. */
#include "base/interrupt.h"
#include "base/memory.h"
#include "cli/options/args.h"
#include "cli/options/help.h"
#include "cli/options/print_once.h"
#include "cli/options/verb.h"

#include <stdio.h>
#include <string.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_STOPPED = 130 };

static int print_and_free(weft_buf *text)
{
    int code =
        text->failed || fwrite(text->data, 1, (size_t)text->len, stdout) != (size_t)text->len;
    weft_buf_free(text);
    return code ? EXIT_FAILED : EXIT_DONE;
}

static int unknown_verb(const char *word)
{
    const char *names[64];
    int count = 0;
    for (int i = 0; i < weft_verb_count && count < 64; i++) {
        if (!weft_verbs[i]->hidden)
            names[count++] = weft_verbs[i]->name;
    }
    const char *near = weft_nearest_name(word, names, count);
    (void)weft_error(WEFT_MSG_VERB_UNKNOWN, WEFT_AT(.value = word), "unknown verb '%.80s'%s%s%s",
                     word, near ? "; did you mean '" : "", near ? near : "",
                     near ? "'?" : "; `weft --help` lists the verbs");
    weft_print_own(NULL);
    return EXIT_USAGE;
}

static int exit_code(const weft_verb *verb, const weft_args *args, weft_status_code status)
{
    if (status == WEFT_OK)
        return EXIT_DONE;
    if (status == WEFT_E_COMM) /* each rank reports the failed rank */
        weft_print_own(verb->name);
    else if (weft_error_message()[0]) /* else another rank prints it */
        weft_print_once(verb->name, status == WEFT_E_ARG || status == WEFT_E_CONFIG);
    if (status == WEFT_E_CANCELLED)
        return EXIT_STOPPED;
    return !args || weft_args_refused(args) ? EXIT_USAGE : EXIT_FAILED;
}

static int run_verb(const weft_verb *verb, int argc, char *const *argv)
{
    weft_args *args;
    weft_status_code status = weft_args_parse(verb, argc, argv, &args);
    if (status != WEFT_OK)
        return exit_code(verb, NULL, status);
    int code;
    if (weft_args_help(args)) {
        weft_buf text = {0};
        status = weft_help_write(verb, weft_args_help(args), &text);
        code = status == WEFT_OK ? print_and_free(&text) : exit_code(verb, NULL, status);
        weft_buf_free(&text);
    } else {
        if (verb->stops_cleanly)
            weft_interrupt_catch();
        status = verb->run(args);
        status = weft_args_send(args, status);
        /* a full disk or a closed pipe of standard output is a failure too */
        if (fflush(stdout) != 0 && status == WEFT_OK)
            status = weft_error_errno(WEFT_NOWHERE, "cannot write standard output");
        code = exit_code(verb, args, status);
    }
    weft_args_free(args);
    return code;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "--help";
    weft_buf text = {0};
    weft_memory_map_large_blocks();
    if (!strcmp(word, "--version")) {
        printf("weft %s\n", WEFT_VERSION);
        return EXIT_DONE;
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
        weft_help_overview(&text);
        int code = print_and_free(&text);
        return argc > 1 ? code : EXIT_USAGE;
    }
    if (word[0] == '-') {
        (void)weft_error(WEFT_MSG_OPTION_UNKNOWN, WEFT_AT(.key = word),
                         "unknown option; see `weft --help`");
        weft_print_own(NULL);
        return EXIT_USAGE;
    }
    const weft_verb *verb = weft_verb_find(word);
    return verb ? run_verb(verb, argc - 2, argv + 2) : unknown_verb(word);
}
