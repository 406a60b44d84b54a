/* Help as terminal text: the first screen of a verb, its sections, and the list of verbs. */
#include "cli/options/help.h"

#include "base/config_text.h"
#include "base/wrap.h"
#include "cli/options/args.h"
#include "cli/options/help_sections.h"

#include <stdio.h>
#include <string.h>

enum { CLAUSE = 256 };

static void first_clause(const char *text, char out[CLAUSE])
{
    snprintf(out, CLAUSE, "%.*s", weft_help_clause(text), text);
}

static void option_head(const weft_option *option, char out[96])
{
    snprintf(out, 96, "%s%s%s", option->name, option->value_name ? " " : "",
             option->value_name ? option->value_name : "");
}

/* Writes a name and its help, which starts at `column` or on a line of its own. */
static void put_entry(weft_buf *out, int column, const char *head, const char *help)
{
    weft_buf_printf(out, "  %s", head);
    if ((int)strlen(head) + 4 > column)
        weft_buf_printf(out, "\n%*s", column, "");
    else
        weft_buf_printf(out, "%*s", column - 2 - (int)strlen(head), "");
    weft_buf_wrap(out, column, help);
    weft_buf_printf(out, "\n");
}

/* Writes one option: the first clause of its help, or, in full, all of it with earlier names. */
static void put_option(weft_buf *out, int column, const weft_option *option, bool full)
{
    char head[96], clause[CLAUSE];
    weft_buf help = {0};
    option_head(option, head);
    first_clause(option->help, clause);
    weft_buf_printf(&help, "%s", full ? option->help : clause);
    for (const char *const *also = option->also; full && also && *also; also++)
        weft_buf_printf(&help, "%s%s", also == option->also ? "; also written " : ", ", *also);
    if (option->required)
        weft_buf_printf(&help, " (required)");
    if (option->repeated)
        weft_buf_printf(&help, " (repeatable)");
    if (option->fallback && option->fallback[0])
        weft_buf_printf(&help, " [%s]", option->fallback);
    put_entry(out, column, head, help.data ? help.data : "");
    out->failed = out->failed || help.failed;
    weft_buf_free(&help);
}

static bool on_first_screen(const weft_verb *verb, const weft_option *option)
{
    return option->common || !strcmp(weft_help_group(verb, option), "options");
}

/* Returns the column of the help texts of the options that the first screen shows. */
static int first_column(const weft_verb *verb)
{
    int column = 12;
    for (int i = 0; weft_help_option(verb, i); i++) {
        char head[96];
        option_head(weft_help_option(verb, i), head);
        const int own = (int)strlen(head) + 4;
        if (on_first_screen(verb, weft_help_option(verb, i)) && own > column && own <= 30)
            column = own;
    }
    return column;
}

static void put_lines(weft_buf *out, const char *first, const char *later, const char *text,
                      const char *end)
{
    while (text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        const int length = (int)((stop ? stop : end) - text);
        char line[1024];
        snprintf(line, sizeof line, "%.*s", length, text);
        weft_buf_printf(out, "%s", first);
        if (strlen(later) + (size_t)length <= WEFT_WRAP_COLUMNS || line[0] == ' ')
            weft_buf_printf(out, "%s", line);
        else
            weft_buf_wrap(out, (int)strlen(later), line);
        weft_buf_printf(out, "\n");
        first = later;
        text += length + 1;
    }
}

static void put_usage(const weft_verb *verb, weft_buf *out)
{
    char first[64], later[64];
    snprintf(first, sizeof first, "usage: weft %s ", verb->name);
    snprintf(later, sizeof later, "       weft %s ", verb->name);
    weft_buf_printf(out, "weft %s - ", verb->name);
    weft_buf_wrap(out, 2, verb->summary);
    weft_buf_printf(out, "\n\n");
    const char *text = verb->usage, *end = text + strlen(text);
    for (const char *head = first; text < end; head = later) {
        const size_t length = strcspn(text, "\n");
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)length, text);
        weft_buf_printf(out, "%s", head);
        weft_buf_wrap(out, (int)strlen(first), line);
        weft_buf_printf(out, "\n");
        text += length + 1;
    }
}

static void put_paragraph(const weft_verb *verb, weft_buf *out)
{
    const char *text = verb->details ? verb->details : "", *end = strstr(text, "\n\n");
    end = end ? end : text + strlen(text);
    if (end > text)
        weft_buf_printf(out, "\n");
    put_lines(out, "", "", text, end);
}

/* Returns the required keys of the config as " (required: out, data.path)". */
static void put_required(const weft_section *section, const char *prefix, bool *any, weft_buf *out)
{
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        const bool value = !key->section && key->type != WEFT_KEY_GONE &&
                           key->type != WEFT_KEY_MOVED && key->type != WEFT_KEY_TREE;
        if (value && !key->fallback) {
            weft_buf_printf(out, "%s%s%s", *any ? ", " : "; required: ", prefix, key->name);
            *any = true;
        }
        if (key->type == WEFT_KEY_SECTION && !prefix[0]) {
            char longer[128];
            snprintf(longer, sizeof longer, "%s.", key->name);
            put_required(key->section, longer, any, out);
        }
    }
}

/* Returns the title of a kind; equal titles have equal addresses. */
static const char *kind_title(weft_help_kind kind)
{
    static const char config[] = "config (--help SECTION", more[] = "more (--help SECTION)";
    switch (kind) {
    case WEFT_HELP_KEYS:
    case WEFT_HELP_CONFIG: return config;
    case WEFT_HELP_DETAILS:
    case WEFT_HELP_OPTIONS:
    case WEFT_HELP_TABLE: break;
    }
    return more;
}

/* Writes "config (--help SECTION; required: out, data.path)" or the title of another kind. */
static void put_kind(const weft_verb *verb, weft_help_kind kind, weft_buf *out)
{
    bool any = false;
    weft_buf_printf(out, "\n%s", kind_title(kind));
    if (kind == WEFT_HELP_KEYS || kind == WEFT_HELP_CONFIG) {
        put_required(verb->config, "", &any, out);
        weft_buf_printf(out, ")");
    }
    weft_buf_printf(out, "\n");
}

/* The group of the options above, which the list of sections omits. */
static bool is_main(const weft_help_section *section)
{
    return section->kind == WEFT_HELP_OPTIONS && !strcmp(section->name, "options");
}

/* Writes the names of the sections, in place of a line each. */
static void put_section_names(const weft_verb *verb, weft_buf *out)
{
    weft_help_section s[WEFT_HELP_SECTIONS];
    const int count = weft_help_sections(verb, s);
    for (int i = 0, next; i < count; i = next) {
        weft_buf names = {0};
        for (next = i; next < count && kind_title(s[next].kind) == kind_title(s[i].kind); next++)
            if (!is_main(&s[next]))
                weft_buf_printf(&names, "%s%s", names.len ? ", " : "", s[next].name);
        if (names.len) {
            put_kind(verb, s[i].kind, out);
            weft_buf_printf(out, "  ");
            weft_buf_wrap(out, 2, names.data);
            weft_buf_printf(out, "\n");
        }
        out->failed = out->failed || names.failed;
        weft_buf_free(&names);
    }
}

/* Returns true if two sections are of one kind and have the same first clause. */
static bool share_line(const weft_help_section *a, const weft_help_section *b)
{
    char first[CLAUSE], second[CLAUSE];
    first_clause(a->help, first);
    first_clause(b->help, second);
    return kind_title(a->kind) == kind_title(b->kind) && !strcmp(first, second);
}

/* Writes the sections of the help with one line each. Sections with the same first clause share the
 * line of the first. */
static void put_sections(const weft_verb *verb, weft_buf *out)
{
    weft_help_section s[WEFT_HELP_SECTIONS];
    const int count = weft_help_sections(verb, s);
    const char *title = "";
    for (int i = 0; i < count; i++) {
        char names[128] = "", clause[CLAUSE];
        bool listed = is_main(&s[i]);
        for (int k = 0; k < i && !listed; k++)
            listed = share_line(&s[k], &s[i]);
        if (listed)
            continue;
        if (title != kind_title(s[i].kind))
            put_kind(verb, s[i].kind, out);
        title = kind_title(s[i].kind);
        for (int k = i; k < count; k++) {
            const size_t used = strlen(names);
            if (share_line(&s[k], &s[i]))
                snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", s[k].name);
        }
        first_clause(s[i].help, clause);
        put_entry(out, 20, names, clause);
    }
}

static void put_examples(const weft_verb *verb, weft_buf *out)
{
    const char *text = verb->examples ? verb->examples : "";
    if (*text)
        weft_buf_printf(out, "%sexamples\n", verb->files ? "" : "\n");
    put_lines(out, "  ", "  ", text, text + strlen(text));
}

/* Writes the names of the options that the first screen shows, in place of their help. */
static void put_option_names(const weft_verb *verb, weft_buf *out)
{
    weft_buf names = {0};
    for (int i = 0; weft_help_option(verb, i); i++)
        if (on_first_screen(verb, weft_help_option(verb, i)))
            weft_buf_printf(&names, "%s%s", names.len ? ", " : "", weft_help_option(verb, i)->name);
    put_entry(out, 12, "options", names.data ? names.data : "");
    weft_buf_free(&names);
}

enum { SCREEN_LINES = 40 };

/* Writes the first screen. Sections by name only from `brevity` 1, options from 2. */
static void put_first_screen(const weft_verb *verb, int brevity, weft_buf *out)
{
    const bool names = brevity > 1;
    const int column = first_column(verb);
    put_usage(verb, out);
    put_paragraph(verb, out);
    weft_buf_printf(out, names ? "\noptions (--help options)\n" : "\noptions\n");
    if (names)
        put_option_names(verb, out);
    for (int i = 0; !names && weft_help_option(verb, i); i++)
        if (on_first_screen(verb, weft_help_option(verb, i)))
            put_option(out, column, weft_help_option(verb, i), false);
    if (brevity > 0)
        put_section_names(verb, out);
    else
        put_sections(verb, out);
    if (verb->files) {
        weft_buf_printf(out, "\nfiles: ");
        weft_buf_wrap(out, 7, verb->files);
        weft_buf_printf(out, "\n");
    }
    put_examples(verb, out);
    if (verb->see) {
        weft_buf_printf(out, "See ");
        weft_buf_wrap(out, 4, verb->see);
        weft_buf_printf(out, ".\n");
    }
}

static int lines_of(const weft_buf *text)
{
    int lines = 0;
    for (int64_t i = 0; i < text->len; i++)
        lines += text->data[i] == '\n';
    return lines;
}

/* Writes the longest form of the first screen that fits. */
static void put_verb(const weft_verb *verb, weft_buf *out)
{
    for (int brevity = 0;; brevity++) {
        weft_buf screen = {0};
        put_first_screen(verb, brevity, &screen);
        const bool fits = brevity == 2 || lines_of(&screen) <= SCREEN_LINES;
        if (fits && screen.len)
            weft_buf_append(out, screen.data, screen.len);
        out->failed = out->failed || screen.failed;
        weft_buf_free(&screen);
        if (fits)
            return;
    }
}

static void put_section(const weft_verb *verb, const weft_help_section *section, weft_buf *out)
{
    const char *details = verb->details;
    switch (section->kind) {
    case WEFT_HELP_DETAILS: put_lines(out, "", "", details, details + strlen(details)); break;
    case WEFT_HELP_OPTIONS:
        weft_buf_printf(out, "%s: ", section->name);
        weft_buf_wrap(
            out, 2, strcmp(section->name, "options") != 0 ? section->help : "options of the verb");
        weft_buf_printf(out, "\n\n");
        for (int i = 0; weft_help_option(verb, i); i++)
            if (!strcmp(weft_help_group(verb, weft_help_option(verb, i)), section->name))
                put_option(out, 28, weft_help_option(verb, i), true);
        break;
    case WEFT_HELP_KEYS:
        weft_buf_printf(out, "keys: ");
        weft_buf_wrap(out, 2, section->help);
        weft_buf_printf(out, "\n\n");
        weft_config_help_keys(verb->config, out);
        break;
    case WEFT_HELP_CONFIG: weft_config_help_section(verb->config, section->name, out); break;
    case WEFT_HELP_TABLE:
        weft_buf_printf(out, "%s: ", section->name);
        weft_buf_wrap(out, 2, section->help);
        weft_buf_printf(out, "\n");
        section->table->put(false, out);
        break;
    }
}

static weft_status unknown_section(const weft_verb *verb, const char *name)
{
    weft_help_section s[WEFT_HELP_SECTIONS];
    const int count = weft_help_sections(verb, s);
    weft_buf names = {0};
    for (int i = 0; i < count; i++)
        weft_buf_printf(&names, "%s, ", s[i].name);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_buf_check(&names));
    WEFT_GO(weft_error(WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--help", .value = name),
                       "the help of weft %s has no section '%.80s'; use one of %sall", verb->name,
                       name, names.data));
out:
    weft_buf_free(&names);
    return status;
}

/* Writes a section by name, a nested section of the config, or an entry of a table. */
static bool put_named(const weft_verb *verb, const char *name, weft_buf *out)
{
    weft_help_section s[WEFT_HELP_SECTIONS];
    const int count = weft_help_sections(verb, s);
    for (int i = 0; i < count; i++) {
        if (!strcmp(s[i].name, name)) {
            put_section(verb, &s[i], out);
            return true;
        }
    }
    if (verb->config && weft_config_help_section(verb->config, name, out))
        return true;
    for (const weft_help_table *t = verb->more; t && t->name; t++)
        if (t->put_entry && t->put_entry(name, out))
            return true;
    return false;
}

weft_status weft_help_write(const weft_verb *verb, const char *name, weft_buf *out)
{
    if (!*name)
        put_verb(verb, out);
    else if (!strcmp(name, "all")) {
        weft_help_section s[WEFT_HELP_SECTIONS];
        const int count = weft_help_sections(verb, s);
        put_usage(verb, out);
        if (s[0].kind != WEFT_HELP_DETAILS)
            put_paragraph(verb, out);
        for (int i = 0; i < count; i++) {
            weft_buf_printf(out, "\n");
            put_section(verb, &s[i], out);
        }
        put_examples(verb, out);
    } else if (!put_named(verb, name, out))
        return unknown_section(verb, name);
    return weft_buf_check(out);
}

void weft_help_overview(weft_buf *out)
{
    weft_buf_printf(out,
                    "weft %s - train and run video generation models\n\n"
                    "usage: weft VERB [arguments]\n"
                    "       weft VERB --help [SECTION]\n\n",
                    WEFT_VERSION);
    for (int i = 0; i < weft_verb_count; i++) {
        if (!weft_verbs[i]->hidden)
            weft_buf_printf(out, "  %-10s %s\n", weft_verbs[i]->name, weft_verbs[i]->summary);
    }
    weft_buf_printf(
        out, "\nExit status: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.\n"
             "WEFT_LOG=error|warn|info|debug sets the level of the messages.\n"
             "WEFT_LOG_FORMAT=json prints messages as JSON. `weft explain ID` explains one.\n");
}
