/* Help, pages, man page and completion, all from the verb tables; and the hidden verb that writes
 * them. */
#include "cli/verb.h"

#include <stdio.h>
#include <string.h>

static void put_option_line(weft_buf *out, const weft_option *option)
{
    char head[96];
    snprintf(head, sizeof head, "%s%s%s", option->name, option->value_name ? " " : "",
             option->value_name ? option->value_name : "");
    weft_buf_printf(out, "  %-28s %s", head, option->help);
    if (option->required)
        weft_buf_printf(out, " (required)");
    if (option->fallback)
        weft_buf_printf(out, " [%s]", option->fallback);
    if (option->repeated)
        weft_buf_printf(out, " (may be repeated)");
    weft_buf_printf(out, "\n");
}

static const weft_option help_option = {"--help", NULL, NULL, "print this help"};
static const weft_option set_option = {
    "--set",
    "KEY=VALUE",
    NULL,
    "override one key of the config; dots reach into sections and lists, as in a.0.b=1",
    .repeated = true,
};

static bool has_option(const weft_verb *verb, const char *name)
{
    for (int i = 0; i < verb->option_count; i++) {
        if (!strcmp(verb->options[i].name, name))
            return true;
    }
    return false;
}

/* Calls `put` for each option, those that every verb has included. */
static void each_option(const weft_verb *verb, weft_buf *out,
                        void (*put)(weft_buf *, const weft_option *))
{
    for (int i = 0; i < verb->option_count; i++)
        put(out, &verb->options[i]);
    if (verb->config && !has_option(verb, "--set"))
        put(out, &set_option);
    put(out, &help_option);
}

static void ensure_newline(weft_buf *out)
{
    if (out->len > 0 && out->data[out->len - 1] != '\n')
        weft_buf_append(out, "\n", 1);
}

void weft_help_overview(weft_buf *out)
{
    weft_buf_printf(out,
                    "weft %s: from raw footage to a trained video model to video files.\n\n"
                    "usage: weft VERB [arguments]\n\n",
                    WEFT_VERSION);
    for (int i = 0; i < weft_verb_count; i++) {
        if (!weft_verbs[i]->hidden)
            weft_buf_printf(out, "  %-10s %s\n", weft_verbs[i]->name, weft_verbs[i]->summary);
    }
    weft_buf_printf(
        out, "\n`weft VERB --help` explains a verb. Exit status: 0 done, 1 failed, 2 wrong usage,\n"
             "130 stopped by Ctrl-C. WEFT_LOG=error|warn|info|debug sets how much is said.\n");
}

void weft_help_verb(const weft_verb *verb, weft_buf *out)
{
    weft_buf_printf(out, "weft %s: %s\n\nusage: weft %s %s\n\n", verb->name, verb->summary,
                    verb->name, verb->usage);
    if (verb->details && verb->details[0])
        weft_buf_printf(out, "%s", verb->details);
    ensure_newline(out);
    weft_buf_printf(out, "\noptions:\n");
    each_option(verb, out, put_option_line);
    if (verb->config) {
        weft_buf_printf(out, "\nconfig file (YAML):\n");
        weft_config_help(verb->config, false, out);
    }
    if (verb->more)
        verb->more(false, out);
    if (verb->examples && verb->examples[0])
        weft_buf_printf(out, "\nexamples:\n");
    for (const char *line = verb->examples; line && *line;) {
        const char *end = strchr(line, '\n');
        int length = end ? (int)(end - line) : (int)strlen(line);
        weft_buf_printf(out, "  %.*s\n", length, line);
        line += length + (end != NULL);
    }
}

/* ---- Markdown ------------------------------------------------------------------------------ */

static void put_cell(weft_buf *out, const char *text)
{
    for (; text && *text; text++) {
        if (*text == '|')
            weft_buf_append(out, "\\", 1);
        weft_buf_append(out, text, 1);
    }
}

static void put_option_row(weft_buf *out, const weft_option *option)
{
    weft_buf_printf(out, "| `%s%s%s` | ", option->name, option->value_name ? " " : "",
                    option->value_name ? option->value_name : "");
    if (option->fallback)
        weft_buf_printf(out, "`%s`", option->fallback);
    else if (option->required)
        weft_buf_printf(out, "required");
    weft_buf_printf(out, " | ");
    put_cell(out, option->help);
    weft_buf_printf(out, "%s |\n", option->repeated ? " (may be repeated)" : "");
}

void weft_help_markdown(const weft_verb *verb, weft_buf *out)
{
    weft_buf_printf(
        out, "<!-- made by `make docs` from the table in src/cli/%s.c -->\n# weft %s\n\n%s.\n\n",
        verb->name, verb->name, verb->summary);
    weft_buf_printf(out, "```\nweft %s %s\n```\n\n", verb->name, verb->usage);
    if (verb->details && verb->details[0])
        weft_buf_printf(out, "%s", verb->details);
    ensure_newline(out);
    weft_buf_printf(out, "\n## Options\n\n| option | default | meaning |\n|---|---|---|\n");
    each_option(verb, out, put_option_row);
    if (verb->config) {
        weft_buf_printf(out, "\n## Config\n\n");
        weft_config_help(verb->config, true, out);
    }
    if (verb->more)
        verb->more(true, out);
    if (verb->examples && verb->examples[0]) {
        weft_buf_printf(out, "\n## Examples\n\n```\n%s", verb->examples);
        ensure_newline(out);
        weft_buf_printf(out, "```\n");
    }
}

/* ---- man page ------------------------------------------------------------------------------ */

/* roff reads '\' and a leading '.' or '\'' as its own. */
static void put_roff(weft_buf *out, const char *text)
{
    bool line_start = true;
    for (; text && *text; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            weft_buf_printf(out, "\\&");
        if (*text == '\\')
            weft_buf_printf(out, "\\e");
        else if (*text == '-')
            weft_buf_printf(out, "\\-");
        else
            weft_buf_append(out, text, 1);
        line_start = *text == '\n';
    }
}

static void put_option_roff(weft_buf *out, const weft_option *option)
{
    weft_buf_printf(out, ".TP\n.B ");
    put_roff(out, option->name);
    weft_buf_printf(out, " %s\n", option->value_name ? option->value_name : "");
    put_roff(out, option->help);
    if (option->fallback) {
        weft_buf_printf(out, " [");
        put_roff(out, option->fallback);
        weft_buf_printf(out, "]");
    }
    weft_buf_printf(out, "\n");
}

void weft_help_man(weft_buf *out)
{
    weft_buf_printf(
        out,
        ".TH WEFT 1 \"\" \"weft %s\"\n.SH NAME\nweft \\- from raw footage to a trained video "
        "model to video files\n.SH SYNOPSIS\n.B weft\n.I VERB\n[arguments]\n",
        WEFT_VERSION);
    for (int i = 0; i < weft_verb_count; i++) {
        const weft_verb *verb = weft_verbs[i];
        if (verb->hidden)
            continue;
        weft_buf_printf(out, ".SH weft %s\n", verb->name);
        put_roff(out, verb->summary);
        weft_buf_printf(out, ".\n.PP\n.B weft %s\n", verb->name);
        put_roff(out, verb->usage);
        weft_buf_printf(out, "\n.PP\n.nf\n");
        put_roff(out, verb->details);
        ensure_newline(out);
        weft_buf_printf(out, ".fi\n");
        each_option(verb, out, put_option_roff);
        weft_buf_printf(out, ".PP\nExamples:\n.PP\n.nf\n");
        put_roff(out, verb->examples);
        ensure_newline(out);
        weft_buf_printf(out, ".fi\n");
    }
    weft_buf_printf(out,
                    ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl\\-C.\n"
                    ".SH ENVIRONMENT\nWEFT_LOG=error|warn|info|debug: how much is said.\n"
                    "OMP_NUM_THREADS: threads of one process.\n");
}

/* ---- bash completion ----------------------------------------------------------------------- */

static void put_option_word(weft_buf *out, const weft_option *option)
{
    weft_buf_printf(out, " %s", option->name);
}

void weft_help_bash(weft_buf *out)
{
    weft_buf_printf(out,
                    "# bash completion for weft, made from its verb tables\n_weft()\n{\n"
                    "    local word=${COMP_WORDS[COMP_CWORD]} options=\n"
                    "    if [ \"$COMP_CWORD\" = 1 ]; then\n        options=\"--help --version");
    for (int i = 0; i < weft_verb_count; i++) {
        if (!weft_verbs[i]->hidden)
            weft_buf_printf(out, " %s", weft_verbs[i]->name);
    }
    weft_buf_printf(out, "\"\n    else\n        case ${COMP_WORDS[1]} in\n");
    for (int i = 0; i < weft_verb_count; i++) {
        if (weft_verbs[i]->hidden)
            continue;
        weft_buf_printf(out, "        %s) options=\"", weft_verbs[i]->name);
        each_option(weft_verbs[i], out, put_option_word);
        weft_buf_printf(out, "\" ;;\n");
    }
    weft_buf_printf(
        out,
        "        esac\n    fi\n    case $word in\n"
        "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
        "    *) [ \"$COMP_CWORD\" = 1 ] && COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) "
        "||\n        COMPREPLY=($(compgen -f -- \"$word\")) ;;\n    esac\n}\n"
        "complete -o filenames -F _weft weft\n");
}

/* ---- the verb ------------------------------------------------------------------------------ */

static weft_status run_help(const weft_args *args)
{
    weft_buf out = {0};
    weft_status_code status = WEFT_OK;
    int count;
    const char *const *word = weft_args_positional(args, &count);
    const char *page = weft_args_string(args, "--markdown");
    const weft_verb *verb = page ? weft_verb_find(page) : count ? weft_verb_find(word[0]) : NULL;
    if (!verb && (page || count))
        return weft_fail(WEFT_E_ARG, "unknown verb '%.80s' (weft --help lists them)",
                         page ? page : word[0]);
    if (weft_args_flag(args, "--verbs")) {
        for (int i = 0; i < weft_verb_count; i++) {
            if (!weft_verbs[i]->hidden)
                weft_buf_printf(&out, "%s\n", weft_verbs[i]->name);
        }
    } else if (weft_args_flag(args, "--man"))
        weft_help_man(&out);
    else if (weft_args_flag(args, "--bash"))
        weft_help_bash(&out);
    else if (page)
        weft_help_markdown(verb, &out);
    else if (verb)
        weft_help_verb(verb, &out);
    else
        weft_help_overview(&out);
    status = weft_buf_check(&out);
    if (status == WEFT_OK)
        fwrite(out.data, 1, (size_t)out.len, stdout);
    weft_buf_free(&out);
    return status;
}

static const weft_option help_options[] = {
    {"--markdown", "VERB", NULL, "the verb's page for docs/verbs"},
    {"--man", NULL, NULL, "the man page"},
    {"--bash", NULL, NULL, "bash completion"},
    {"--verbs", NULL, NULL, "the names of the verbs, one a line"},
};
const weft_verb weft_verb_help = {
    .name = "help",
    .summary = "print help in the form that the docs, the man page or the shell need",
    .usage = "[VERB | --markdown VERB | --man | --bash | --verbs]",
    .details = "",
    .examples = "weft help doctor\n",
    .options = help_options,
    .option_count = WEFT_COUNT(help_options),
    .max_positional = 1,
    .hidden = true,
    .run = run_help,
};
