/* The hidden verb that writes the help as text, pages, man pages and completion. */
#include "cli/options/help.h"

#include "cli/options/args.h"
#include "cli/options/completion.h"
#include "cli/options/help_pages.h"

#include <stdio.h>

static weft_status run_help(const weft_args *args)
{
    weft_buf out = {0};
    weft_status_code status = WEFT_OK;
    int count;
    const char *const *word = weft_args_positional(args, &count);
    const char *page = weft_args_string(args, "--markdown");
    const weft_verb *verb = page ? weft_verb_find(page) : count ? weft_verb_find(word[0]) : NULL;
    if (!verb && (page || count))
        return weft_error(WEFT_MSG_VERB_UNKNOWN, WEFT_AT(.value = page ? page : word[0]),
                          "unknown verb '%.80s'; `weft --help` lists the verbs",
                          page ? page : word[0]);
    if (weft_args_flag(args, "--verbs")) {
        for (int i = 0; i < weft_verb_count; i++) {
            if (!weft_verbs[i]->hidden)
                weft_buf_printf(&out, "%s\n", weft_verbs[i]->name);
        }
    } else if (weft_args_flag(args, "--man"))
        weft_help_man(verb, &out);
    else if (weft_args_flag(args, "--bash"))
        weft_completion_bash(&out);
    else if (weft_args_flag(args, "--zsh"))
        weft_completion_zsh(&out);
    else if (weft_args_flag(args, "--fish"))
        weft_completion_fish(&out);
    else if (page)
        weft_help_markdown(verb, &out);
    else if (verb)
        WEFT_GO(weft_help_write(verb, count > 1 ? word[1] : "", &out));
    else
        weft_help_overview(&out);
    WEFT_GO(weft_buf_check(&out));
    fwrite(out.data, 1, (size_t)out.len, stdout);
out:
    weft_buf_free(&out);
    return status;
}

static const weft_option help_options[] = {
    {"--markdown", "VERB", NULL, "print the page of a verb for docs/reference/verbs"},
    {"--man", NULL, NULL, "print the man page of weft, or of VERB"},
    {"--bash", NULL, NULL, "print bash completion"},
    {"--zsh", NULL, NULL, "print zsh completion"},
    {"--fish", NULL, NULL, "print fish completion"},
    {"--verbs", NULL, NULL, "print the names of the verbs, one per line"},
};
const weft_verb weft_verb_help = {
    .name = "help",
    .summary = "print help as text, Markdown, man page or shell completion",
    .usage = "[VERB [SECTION] | --markdown VERB | --man | --bash | --zsh | --fish | --verbs]",
    .details = "",
    .examples = "weft help doctor\n",
    .options = help_options,
    .option_count = WEFT_COUNT(help_options),
    .max_positional = 2,
    .hidden = true,
    .run = run_help,
};
