/* Shell completion. The files of bash and zsh share a function _weft_words that prints words:
 *   verbs | words VERB | options VERB | values VERB OPTION | sections VERB
 *   config VERB (the name of its config) | keys CONFIG | choices CONFIG KEY */
#include "cli/options/completion.h"

#include "cli/options/args.h"
#include "cli/options/help_sections.h"

#include <stdio.h>
#include <string.h>

/* ---- words ---------------------------------------------------------------------------------- */

/* The first words of the forms of a usage that are written as they are: "cascades|compare CONFIG".
 */
static void put_first_words(weft_buf *out, const weft_verb *verb)
{
    const char *space = "";
    for (const char *line = verb->usage; *line; line += *line == '\n') {
        const char *end = line + strcspn(line, " \n");
        for (const char *at = line; at < end; at += *at == '|') {
            const size_t length = strcspn(at, "| \n");
            if (length && strspn(at, "abcdefghijklmnopqrstuvwxyz-") == length) {
                weft_buf_printf(out, "%s%.*s", space, (int)length, at);
                space = " ";
            }
            at += length;
        }
        line += strcspn(line, "\n");
    }
}

static void put_verbs(weft_buf *out)
{
    for (int i = 0; i < weft_verb_count; i++)
        if (!weft_verbs[i]->hidden)
            weft_buf_printf(out, " %s", weft_verbs[i]->name);
}

/* Calls `put` for each key that a file may set. `prefix`: path of the section with a dot. */
static void each_key(const weft_section *section, const char *prefix, weft_buf *out,
                     void (*put)(const char *path, const weft_key *, weft_buf *))
{
    for (int i = 0; i < section->key_count; i++) {
        const weft_key *key = &section->keys[i];
        char path[256];
        if (key->type == WEFT_KEY_GONE || key->type == WEFT_KEY_MOVED)
            continue;
        snprintf(path, sizeof path, "%s%s", prefix, key->name);
        if (!key->section) {
            put(path, key, out);
            continue;
        }
        snprintf(path, sizeof path, "%s%s%s", prefix, key->name,
                 key->type == WEFT_KEY_SECTION_LIST ? ".0." : ".");
        each_key(key->section, path, out, put);
    }
}

static void put_choices(const weft_key *key, weft_buf *out)
{
    if (key->type == WEFT_KEY_BOOL)
        weft_buf_printf(out, "true false");
    for (int i = 0; key->type == WEFT_KEY_ENUM && key->choices[i]; i++)
        weft_buf_printf(out, "%s%s", i ? " " : "", key->choices[i]);
}

static bool has_choices(const weft_key *key)
{
    return key->type == WEFT_KEY_BOOL || key->type == WEFT_KEY_ENUM;
}

/* ---- bash and zsh --------------------------------------------------------------------------- */

static void put_path(const char *path, const weft_key *key, weft_buf *out)
{
    (void)key;
    weft_buf_printf(out, " %s", path);
}

static void put_choice_row(const char *path, const weft_key *key, weft_buf *out)
{
    if (!has_choices(key))
        return;
    weft_buf_printf(out, "    /%s) echo \"", path);
    put_choices(key, out);
    weft_buf_printf(out, "\" ;;\n");
}

static void put_verb_rows(const weft_verb *verb, weft_buf *out)
{
    weft_help_section s[WEFT_HELP_SECTIONS];
    const int count = weft_help_sections(verb, s);
    weft_buf_printf(out, "    words/%s/) echo \"", verb->name);
    put_first_words(out, verb);
    weft_buf_printf(out, "\" ;;\n    options/%s/) echo \"", verb->name);
    for (int i = 0; weft_help_option(verb, i); i++)
        weft_buf_printf(out, "%s%s", i ? " " : "", weft_help_option(verb, i)->name);
    weft_buf_printf(out, "\" ;;\n    sections/%s/) echo \"all", verb->name);
    for (int i = 0; i < count; i++)
        weft_buf_printf(out, " %s", s[i].name);
    weft_buf_printf(out, "\" ;;\n");
    for (int i = 0; i < verb->option_count; i++)
        if (verb->options[i].choices)
            weft_buf_printf(out, "    values/%s/%s) echo \"%s\" ;;\n", verb->name,
                            verb->options[i].name, verb->options[i].choices);
    if (verb->config)
        weft_buf_printf(out, "    config/%s/) echo %s ;;\n", verb->name, verb->config->name);
}

/* Whether an earlier verb has the same config. */
static bool is_repeated(int verb)
{
    for (int i = 0; i < verb; i++)
        if (weft_verbs[i]->config == weft_verbs[verb]->config)
            return true;
    return false;
}

static void put_words_function(weft_buf *out)
{
    weft_buf_printf(out, "_weft_words() { # KIND [VERB|CONFIG [OPTION|KEY]]\n"
                         "    case $1/$2/$3 in\n    verbs//) echo \"--help --version");
    put_verbs(out);
    weft_buf_printf(out, "\" ;;\n");
    for (int i = 0; i < weft_verb_count; i++)
        if (!weft_verbs[i]->hidden)
            put_verb_rows(weft_verbs[i], out);
    for (int i = 0; i < weft_verb_count; i++)
        if (weft_verbs[i]->config && !is_repeated(i)) {
            weft_buf_printf(out, "    keys/%s/) echo \"", weft_verbs[i]->config->name);
            each_key(weft_verbs[i]->config, "", out, put_path);
            weft_buf_printf(out, "\" ;;\n    choices/%s/*) _weft_%s_choices \"/$3\" ;;\n",
                            weft_verbs[i]->config->name, weft_verbs[i]->config->name);
        }
    weft_buf_printf(out, "    esac\n}\n");
    for (int i = 0; i < weft_verb_count; i++)
        if (weft_verbs[i]->config && !is_repeated(i)) {
            weft_buf_printf(out, "_weft_%s_choices() { # /KEY\n    case $1 in\n",
                            weft_verbs[i]->config->name);
            each_key(weft_verbs[i]->config, "", out, put_choice_row);
            weft_buf_printf(out, "    esac\n}\n");
        }
}

/* Readline splits KEY=VALUE into three words. */
static const char bash_function[] =
    "_weft()\n{\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= at\n"
    "    local verb=${COMP_WORDS[1]}\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" = 1 ]; then\n"
    "        words=$(_weft_words verbs)\n"
    "    elif [ \"$word\" = = ] || [ \"$before\" = = ]; then\n"
    "        at=$((COMP_CWORD - 2))\n"
    "        [ \"$word\" != = ] || { word= at=$((COMP_CWORD - 1)); }\n"
    "        words=$(_weft_words choices \"$(_weft_words config \"$verb\")\" "
    "\"${COMP_WORDS[at]}\")\n"
    "    elif [ \"$before\" = --help ]; then\n"
    "        words=$(_weft_words sections \"$verb\")\n"
    "    elif [ \"$before\" = --set ]; then\n"
    "        compopt -o nospace 2>/dev/null\n"
    "        words=$(_weft_words keys \"$(_weft_words config \"$verb\")\")\n"
    "        COMPREPLY=($(compgen -S = -W \"$words\" -- \"$word\"))\n"
    "        return\n"
    "    elif [ \"${word:0:1}\" = - ]; then\n"
    "        words=$(_weft_words options \"$verb\")\n"
    "    else\n"
    "        words=$(_weft_words values \"$verb\" \"$before\")\n"
    "        [ \"$COMP_CWORD\" -gt 2 ] || words=\"$words $(_weft_words words \"$verb\")\"\n"
    "    fi\n"
    "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
    "    if [ ${#COMPREPLY[@]} = 0 ] && [ \"$COMP_CWORD\" -gt 1 ]; then\n"
    "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
    "    fi\n"
    "}\n"
    "complete -o filenames -F _weft weft\n";

void weft_completion_bash(weft_buf *out)
{
    weft_buf_printf(out, "# bash completion for weft, made from its verb tables\n");
    put_words_function(out);
    weft_buf_append(out, bash_function, sizeof bash_function - 1);
}

static const char zsh_function[] =
    "_weft() {\n"
    "    local word=$words[CURRENT] before=$words[CURRENT-1] verb=$words[2] found=\n"
    "    if (( CURRENT == 2 )); then\n"
    "        verb=\n"
    "        found=$(_weft_words verbs)\n"
    "    elif [[ $before == --set && $word == *=* ]]; then\n"
    "        compset -P '*='\n"
    "        found=$(_weft_words choices \"$(_weft_words config $verb)\" ${word%%=*})\n"
    "    elif [[ $before == --set ]]; then\n"
    "        found=$(_weft_words keys \"$(_weft_words config $verb)\")\n"
    "        compadd -S = -- ${=found}\n"
    "        return\n"
    "    elif [[ $before == --help ]]; then\n"
    "        found=$(_weft_words sections $verb)\n"
    "    elif [[ $word == -* ]]; then\n"
    "        found=$(_weft_words options $verb)\n"
    "    else\n"
    "        found=$(_weft_words values $verb $before)\n"
    "        (( CURRENT > 3 )) || found=\"$found $(_weft_words words $verb)\"\n"
    "    fi\n"
    "    compadd -- ${=found} || _files\n"
    "}\n"
    "[[ $funcstack[1] != _weft ]] || _weft \"$@\"\n";

void weft_completion_zsh(weft_buf *out)
{
    weft_buf_printf(out, "#compdef weft\n# made from the verb tables of weft\n");
    put_words_function(out);
    weft_buf_append(out, zsh_function, sizeof zsh_function - 1);
}

/* ---- fish ----------------------------------------------------------------------------------- */

/* The first clause of a help in quotes. */
static void put_fish_text(weft_buf *out, const char *text)
{
    const int length = weft_help_clause(text);
    weft_buf_printf(out, "'");
    for (int i = 0; i < length; i++)
        weft_buf_printf(out, text[i] == '\'' || text[i] == '\\' ? "\\%c" : "%c", text[i]);
    weft_buf_printf(out, "'");
}

static void put_fish_key(const char *path, const weft_key *key, weft_buf *out)
{
    weft_buf_printf(out, " %s=", path);
    for (int i = 0; key->type == WEFT_KEY_ENUM && key->choices[i]; i++)
        weft_buf_printf(out, " %s=%s", path, key->choices[i]);
    if (key->type == WEFT_KEY_BOOL)
        weft_buf_printf(out, " %s=true %s=false", path, path);
}

static void put_fish_option(const weft_verb *verb, const weft_option *option, weft_buf *out)
{
    weft_buf_printf(out, "complete -c weft -n '__fish_seen_subcommand_from %s' -l %s", verb->name,
                    option->name + 2);
    if (verb->config && !strcmp(option->name, "--set")) {
        weft_buf_printf(out, " -x -a '");
        each_key(verb->config, "", out, put_fish_key);
        weft_buf_printf(out, "'");
    } else if (option->choices)
        weft_buf_printf(out, " -x -a '%s'", option->choices);
    else if (option->value_name && option->value_name[0] != '[')
        weft_buf_printf(out, " -r");
    weft_buf_printf(out, " -d ");
    put_fish_text(out, option->help);
    weft_buf_printf(out, "\n");
}

void weft_completion_fish(weft_buf *out)
{
    weft_buf_printf(out, "# fish completion for weft, made from its verb tables\n");
    for (int i = 0; i < weft_verb_count; i++) {
        const weft_verb *verb = weft_verbs[i];
        weft_buf words = {0};
        if (verb->hidden)
            continue;
        weft_buf_printf(out, "complete -c weft -n __fish_use_subcommand -f -a %s -d ", verb->name);
        put_fish_text(out, verb->summary);
        put_first_words(&words, verb);
        if (words.len)
            weft_buf_printf(out,
                            "\ncomplete -c weft -n '__fish_seen_subcommand_from %s' -f -a '%s'",
                            verb->name, words.data);
        weft_buf_printf(out, "\n");
        weft_buf_free(&words);
        for (int k = 0; weft_help_option(verb, k); k++)
            put_fish_option(verb, weft_help_option(verb, k), out);
    }
}
