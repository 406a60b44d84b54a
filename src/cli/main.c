/* weft: finds the verb, reads its arguments, runs it, and turns its status into an exit status:
 * 0 done, 1 failed, 2 wrong usage, 130 stopped by the user. */
#include "cli/options/args.h"
#include "cli/options/help.h"
#include "cli/options/print_once.h"
#include "cli/run_verb.h"

#include <stdio.h>
#include <string.h>

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
    return WEFT_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "--help";
    weft_buf text = {0};
    weft_memory_map_large_blocks();
    if (!strcmp(word, "--version")) {
        printf("weft %s\n", WEFT_VERSION);
        return WEFT_EXIT_DONE;
    }
    if (!strcmp(word, "--help") || !strcmp(word, "-h")) {
        weft_help_overview(&text);
        int code = weft_print_and_free(&text);
        return argc > 1 ? code : WEFT_EXIT_USAGE;
    }
    if (word[0] == '-') {
        (void)weft_error(WEFT_MSG_OPTION_UNKNOWN, WEFT_AT(.key = word),
                         "unknown option; see `weft --help`");
        weft_print_own(NULL);
        return WEFT_EXIT_USAGE;
    }
    const weft_verb *verb = weft_verb_find(word);
    return verb ? weft_run_verb(verb, argc - 2, argv + 2) : unknown_verb(word);
}
