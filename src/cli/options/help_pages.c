/* The verb tables as pages: Markdown for docs/reference/verbs, and man pages. */
#include "cli/options/help_pages.h"

#include "base/config_text.h"
#include "cli/options/args.h"
#include "cli/options/help_sections.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Appends the earlier names of an option, each between two marks. */
static void put_also(weft_buf *out, const weft_option *option, const char *mark)
{
    for (const char *const *also = option->also; also && *also; also++)
        weft_buf_printf(out, "%s%s%s%s", also == option->also ? "; also written " : ", ", mark,
                        *also, mark);
}

/* Calls `put` for each option of a group. */
static void each_option(const weft_verb *verb, const char *group, weft_buf *out,
                        void (*put)(weft_buf *, const weft_option *))
{
    for (int i = 0; weft_help_option(verb, i); i++)
        if (!strcmp(weft_help_group(verb, weft_help_option(verb, i)), group))
            put(out, weft_help_option(verb, i));
}

static void ensure_newline(weft_buf *out)
{
    if (out->len > 0 && out->data[out->len - 1] != '\n')
        weft_buf_append(out, "\n", 1);
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
    put_also(out, option, "`");
    weft_buf_printf(out, "%s |\n", option->repeated ? " (repeatable)" : "");
}

static void put_option_tables(const weft_verb *verb, weft_buf *out)
{
    weft_help_section s[WEFT_HELP_SECTIONS];
    const int count = weft_help_sections(verb, s);
    weft_buf_printf(out, "\n## Options\n");
    for (int i = 0; i < count; i++) {
        if (s[i].kind != WEFT_HELP_OPTIONS)
            continue;
        if (verb->groups && strcmp(s[i].name, "options") != 0)
            weft_buf_printf(out, "\n### %s\n\n%s\n", s[i].name, s[i].help);
        weft_buf_printf(out, "\n| option | default | meaning |\n|---|---|---|\n");
        each_option(verb, s[i].name, out, put_option_row);
    }
}

/* Writes each form of the usage as a command line. */
static void put_usage(const weft_verb *verb, weft_buf *out)
{
    weft_buf_printf(out, "```\n");
    for (const char *line = verb->usage; *line; line += *line == '\n') {
        const int length = (int)strcspn(line, "\n");
        weft_buf_printf(out, "weft %s %.*s\n", verb->name, length, line);
        line += length;
    }
    weft_buf_printf(out, "```\n\n");
}

void weft_help_markdown(const weft_verb *verb, weft_buf *out)
{
    weft_buf_printf(
        out, "<!-- made by `make docs` from the table in src/cli/%s.c -->\n# weft %s\n\n%s.\n\n",
        verb->name, verb->name, verb->summary);
    put_usage(verb, out);
    if (verb->details && verb->details[0])
        weft_buf_printf(out, "%s", verb->details);
    ensure_newline(out);
    if (verb->files)
        weft_buf_printf(out, "\nFiles: %s.\n", verb->files);
    if (verb->see)
        weft_buf_printf(out, "\nSee %s.\n", verb->see);
    put_option_tables(verb, out);
    if (verb->config) {
        weft_buf_printf(out, "\n## Config\n\n");
        weft_config_help(verb->config, true, out);
    }
    for (const weft_help_table *t = verb->more; t && t->name; t++)
        t->put(true, out);
    if (verb->examples && verb->examples[0]) {
        weft_buf_printf(out, "\n## Examples\n\n```\n%s", verb->examples);
        ensure_newline(out);
        weft_buf_printf(out, "```\n");
    }
}

/* ---- man page ------------------------------------------------------------------------------ */

/* Escapes '\' and a leading '.' or '\'', which are special in roff. */
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
    for (const char *const *also = option->also; also && *also; also++) {
        weft_buf_printf(out, also == option->also ? "; also written " : ", ");
        put_roff(out, *also);
    }
    if (option->fallback) {
        weft_buf_printf(out, " [");
        put_roff(out, option->fallback);
        weft_buf_printf(out, "]");
    }
    weft_buf_printf(out, "\n");
}

/* Writes each form of the usage as a line. */
static void put_roff_usage(const weft_verb *verb, weft_buf *out)
{
    for (const char *text = verb->usage; *text; text += *text == '\n') {
        char form[512];
        const int length = (int)strcspn(text, "\n");
        snprintf(form, sizeof form, "%.*s", length, text);
        weft_buf_printf(out, "%s.B weft %s\n", text > verb->usage ? ".br\n" : "", verb->name);
        put_roff(out, form);
        weft_buf_printf(out, "\n");
        text += length;
    }
}

/* The page weft.1: the verbs, and what holds for all. */
static void put_man_overview(weft_buf *out)
{
    weft_buf_printf(
        out,
        ".TH WEFT 1 \"\" \"weft %s\"\n.SH NAME\nweft \\- train and run video generation "
        "models\n.SH SYNOPSIS\n.B weft\n.I VERB\n[arguments]\n.SH VERBS\n",
        WEFT_VERSION);
    for (int i = 0; i < weft_verb_count; i++) {
        if (weft_verbs[i]->hidden)
            continue;
        weft_buf_printf(out, ".TP\n.BR weft\\-%s (1)\n", weft_verbs[i]->name);
        put_roff(out, weft_verbs[i]->summary);
        weft_buf_printf(out, "\n");
    }
    weft_buf_printf(
        out, ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl\\-C.\n"
             ".SH ENVIRONMENT\nWEFT_LOG=error|warn|info|debug: which messages are printed.\n.br\n"
             "WEFT_LOG_FORMAT=json: messages and progress as lines of JSON.\n.br\n"
             "OMP_NUM_THREADS: threads of one process.\n");
}

static void put_man_options(const weft_verb *verb, weft_buf *out)
{
    weft_help_section s[WEFT_HELP_SECTIONS];
    const int count = weft_help_sections(verb, s);
    weft_buf_printf(out, ".SH OPTIONS\n");
    for (int k = 0; k < count; k++) {
        if (s[k].kind != WEFT_HELP_OPTIONS)
            continue;
        if (strcmp(s[k].name, "options") != 0) {
            weft_buf_printf(out, ".SS ");
            put_roff(out, s[k].name);
            weft_buf_printf(out, "\n");
        }
        each_option(verb, s[k].name, out, put_option_roff);
    }
}

/* Lines as they are. */
static void put_roff_lines(weft_buf *out, const char *text)
{
    weft_buf_printf(out, ".PP\n.nf\n");
    put_roff(out, text);
    ensure_newline(out);
    weft_buf_printf(out, ".fi\n");
}

static void put_man_config(const weft_verb *verb, weft_buf *out)
{
    weft_buf text = {0};
    weft_config_help(verb->config, false, &text);
    weft_buf_printf(out, ".SH CONFIG\n");
    put_roff_lines(out, text.data ? text.data : "");
    weft_buf_free(&text);
}

void weft_help_man(const weft_verb *verb, weft_buf *out)
{
    if (!verb) {
        put_man_overview(out);
        return;
    }
    weft_buf_printf(out, ".TH WEFT\\-");
    for (const char *c = verb->name; *c; c++)
        weft_buf_printf(out, "%c", toupper((unsigned char)*c));
    weft_buf_printf(out, " 1 \"\" \"weft %s\"\n.SH NAME\nweft\\-%s \\- ", WEFT_VERSION, verb->name);
    put_roff(out, verb->summary);
    weft_buf_printf(out, "\n.SH SYNOPSIS\n");
    put_roff_usage(verb, out);
    weft_buf_printf(out, ".SH DESCRIPTION\n");
    put_roff_lines(out, verb->details);
    put_man_options(verb, out);
    if (verb->config)
        put_man_config(verb, out);
    weft_buf_printf(out, ".SH EXAMPLES\n");
    put_roff_lines(out, verb->examples);
    weft_buf_printf(out, ".SH SEE ALSO\n.BR weft (1)\n");
}
