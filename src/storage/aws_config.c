#include "storage/aws_config.h"

#include "base/config.h"
#include "base/fs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- files --------------------------------------------------------------------------------- */

/* A line "key = value" of a section. Keys below "s3 =" are "s3.KEY". */
typedef struct setting {
    const char *section, *key, *value; /* arena */
} setting;

typedef struct aws_file {
    const char *path; /* arena */
    bool prefixed;    /* profiles are "[profile NAME]"; false: "[NAME]" */
    setting *setting;
    int64_t count, capacity;
} aws_file;

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = 0;
    return text;
}

/* Removes the quotes and backslashes of a name as a shell does: "my profile", my\ profile. False: a
 * quote is open, or the text is not one word. */
static bool unquote(char *text)
{
    char *to = text, quote = 0;
    for (const char *at = text; *at; at++) {
        if (quote ? *at == quote : *at == '"' || *at == '\'') {
            quote = quote ? 0 : *at;
            continue;
        }
        if (!quote && isspace((unsigned char)*at))
            return false;
        const bool escaped =
            *at == '\\' && at[1] && quote != '\'' && (!quote || at[1] == quote || at[1] == '\\');
        at += escaped;
        *to++ = *at;
    }
    *to = 0;
    return !quote;
}

/* "[profile  dev]" and "[profile \"dev\"]" are the section "profile dev"; "[profile default]" is
 * "default". Names of the credentials file are used as they are. */
static const char *section_of(weft_arena *arena, const aws_file *file, char *line)
{
    char *close = strrchr(line, ']');
    if (close)
        *close = 0;
    char *name = trim(line + 1), *space = strpbrk(name, " \t");
    if (!space || !file->prefixed)
        return weft_arena_strdup(arena, name);
    char *second = trim(space + 1);
    if (!unquote(second))
        return ""; /* the AWS tools ignore the section */
    *space = 0;
    if (!strcmp(name, "profile") && !strcmp(second, "default"))
        return "default";
    return weft_arena_printf(arena, "%s %s", name, second);
}

/* The later one of "[default]" and "[profile default]" replaces the other. */
static void forget_section(aws_file *file, const char *section)
{
    for (int64_t i = 0; i < file->count; i++)
        if (!strcmp(file->setting[i].section, section))
            file->setting[i].section = "";
}

/* Adds "key = value" or "key: value"; *group is the key whose indented lines follow. */
static weft_status add_setting(weft_arena *arena, aws_file *file, const char *section, char *line,
                               const char **group)
{
    const bool nested = isspace((unsigned char)*line);
    char *separator = nested && *group ? strchr(line, '=') : strpbrk(line, "=:");
    if (!separator)
        return WEFT_OK;
    *separator = 0;
    const char *key = trim(line), *value = trim(separator + 1);
    WEFT_TRY(
        weft_grow((void **)&file->setting, file->count, &file->capacity, sizeof *file->setting));
    setting *s = &file->setting[file->count];
    s->section = section;
    s->key = nested && *group ? weft_arena_printf(arena, "%s.%s", *group, key)
                              : weft_arena_strdup(arena, key);
    s->value = weft_arena_strdup(arena, value);
    WEFT_TRY(WEFT_ALLOCATED(s->key && s->value, "%s", file->path));
    if (!nested)
        *group = *value ? NULL : s->key;
    file->count++;
    return WEFT_OK;
}

/* A file that does not exist has no settings. A byte order mark is skipped. */
static weft_status read_file(weft_arena *arena, aws_file *file)
{
    char *text = NULL, *rest = NULL;
    const char *section = "", *group = NULL;
    int64_t bytes;
    if (!weft_path_exists(file->path))
        return WEFT_OK;
    WEFT_TRY(weft_file_read(file->path, 1 << 24, &text, &bytes));
    weft_status_code status = WEFT_OK;
    for (char *line = strtok_r(text + 3 * !strncmp(text, "\xef\xbb\xbf", 3), "\r\n", &rest); line;
         line = strtok_r(NULL, "\r\n", &rest)) {
        const char first = line[strspn(line, " \t")];
        if (!first || first == '#' || first == ';')
            continue;
        if (first == '[') {
            section = section_of(arena, file, line + strspn(line, " \t"));
            group = NULL;
            WEFT_GO(WEFT_ALLOCATED(section, "%s", file->path));
            if (!strcmp(section, "default"))
                forget_section(file, section);
        } else {
            WEFT_GO(add_setting(arena, file, section, line, &group));
        }
    }
out:
    if (text)
        explicit_bzero(text, (size_t)bytes);
    weft_free(text);
    return status;
}

/* The last value of the key; NULL: none, or empty. */
static const char *find(const aws_file *file, const char *section, const char *key)
{
    for (int64_t i = file->count - 1; i >= 0; i--)
        if (!strcmp(file->setting[i].section, section) && !strcasecmp(file->setting[i].key, key))
            return *file->setting[i].value ? file->setting[i].value : NULL;
    return NULL;
}

static bool has_section(const aws_file *file, const char *section)
{
    for (int64_t i = 0; i < file->count; i++)
        if (!strcmp(file->setting[i].section, section))
            return true;
    return false;
}

/* ---- settings ------------------------------------------------------------------------------ */

typedef struct reading {
    weft_arena *arena;
    aws_file config, credentials;
    const char *section; /* of the profile in the config file: "default", "profile dev" */
    weft_aws_settings *out;
} reading;

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static const char *first_of(const char *a, const char *b)
{
    return a ? a : b;
}

static bool is_true(const char *text)
{
    return text && (!strcasecmp(text, "true") || !strcmp(text, "1"));
}

/* A key of the profile, from either file. */
static const char *of_profile(const reading *r, const char *key)
{
    return first_of(find(&r->config, r->section, key), find(&r->credentials, r->out->profile, key));
}

static weft_status locate(reading *r, const char *variable, const char *name, aws_file *file)
{
    const char *home = environment("HOME");
    file->path = environment(variable)
                     ? weft_arena_strdup(r->arena, environment(variable))
                     : weft_arena_printf(r->arena, "%s/.aws/%s", home ? home : "", name);
    WEFT_TRY(WEFT_ALLOCATED(file->path, "the AWS settings"));
    return read_file(r->arena, file);
}

static weft_status choose_profile(reading *r)
{
    const char *given = first_of(environment("AWS_PROFILE"), environment("AWS_DEFAULT_PROFILE"));
    r->out->profile = weft_arena_strdup(r->arena, given ? given : "default");
    WEFT_TRY(WEFT_ALLOCATED(r->out->profile, "the AWS settings"));
    r->section = strcmp(r->out->profile, "default")
                     ? weft_arena_printf(r->arena, "profile %s", r->out->profile)
                     : "default";
    WEFT_TRY(WEFT_ALLOCATED(r->section, "the AWS settings"));
    if (given && !has_section(&r->config, r->section) &&
        !has_section(&r->credentials, r->out->profile))
        return weft_error(WEFT_MSG_STORAGE_SETTINGS, WEFT_AT(.key = "AWS_PROFILE", .value = given),
                          "%s and %s have no profile named %s. Correct AWS_PROFILE, or add the "
                          "profile with `aws configure --profile %s`.",
                          r->config.path, r->credentials.path, given, given);
    return WEFT_OK;
}

static weft_status set_keys(reading *r, const char *where, const char *access, const char *secret,
                            const char *token)
{
    weft_aws_settings *s = r->out;
    if (!access || !secret)
        return weft_error(WEFT_MSG_STORAGE_SETTINGS, WEFT_AT(.file = where),
                          "the %s is set and the %s is not. Set both.",
                          access ? "access key" : "secret key",
                          access ? "secret key" : "access key");
    s->source = WEFT_AWS_KEYS;
    s->access_key = weft_arena_strdup(r->arena, access);
    s->secret_key = weft_arena_strdup(r->arena, secret);
    s->session_token = token ? weft_arena_strdup(r->arena, token) : NULL;
    return WEFT_ALLOCATED(s->access_key && s->secret_key && (s->session_token || !token),
                          "the credentials");
}

static weft_status use_keys(reading *r, const aws_file *file, const char *section, bool *found)
{
    const char *access = find(file, section, "aws_access_key_id"),
               *secret = find(file, section, "aws_secret_access_key");
    *found = access || secret;
    return *found
               ? set_keys(r, file->path, access, secret, find(file, section, "aws_session_token"))
               : WEFT_OK;
}

/* Roles and single sign-on need services of their own; the AWS tools resolve them for weft. */
static weft_status refuse_roles(const reading *r)
{
    static const char *const keys[] = {"role_arn", "sso_session", "sso_start_url",
                                       "web_identity_token_file"};
    for (int i = 0; i < WEFT_COUNT(keys); i++)
        if (of_profile(r, keys[i]))
            return weft_error(
                WEFT_MSG_STORAGE_SETTINGS, WEFT_AT(.file = r->config.path, .key = keys[i]),
                "weft does not resolve this setting of the profile %s. Add a profile with "
                "\"credential_process = aws configure export-credentials --profile %s\" and name "
                "that profile in AWS_PROFILE.",
                r->out->profile, r->out->profile);
    return WEFT_OK;
}

static weft_status use_container(reading *r)
{
    const char *relative = environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
               *full = environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    r->out->source = WEFT_AWS_CONTAINER;
    r->out->container = relative ? weft_arena_printf(r->arena, "http://169.254.170.2%s", relative)
                                 : weft_arena_strdup(r->arena, full);
    return WEFT_ALLOCATED(r->out->container, "the credentials");
}

static weft_status use_instance(reading *r)
{
    const char *endpoint = environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    if (is_true(environment("AWS_EC2_METADATA_DISABLED")))
        return weft_error(WEFT_MSG_STORAGE_CREDENTIALS, WEFT_AT(.key = r->out->profile),
                          "the environment, %s and %s have no credentials. Set AWS_ACCESS_KEY_ID "
                          "and AWS_SECRET_ACCESS_KEY, or run `aws configure`; for a public bucket "
                          "set WEFT_S3_UNSIGNED=1.",
                          r->credentials.path, r->config.path);
    r->out->source = WEFT_AWS_INSTANCE;
    r->out->instance = weft_arena_strdup(r->arena, endpoint ? endpoint : "http://169.254.169.254");
    return WEFT_ALLOCATED(r->out->instance, "the credentials");
}

static weft_status choose_credentials(reading *r)
{
    const char *access = environment("AWS_ACCESS_KEY_ID"),
               *secret = environment("AWS_SECRET_ACCESS_KEY");
    bool found;
    if (is_true(environment("WEFT_S3_UNSIGNED"))) {
        r->out->source = WEFT_AWS_UNSIGNED;
        return WEFT_OK;
    }
    if (access || secret)
        return set_keys(r, "environment", access, secret, environment("AWS_SESSION_TOKEN"));
    WEFT_TRY(use_keys(r, &r->credentials, r->out->profile, &found));
    if (found)
        return WEFT_OK;
    const char *process = of_profile(r, "credential_process");
    if (process) {
        r->out->source = WEFT_AWS_PROCESS;
        r->out->process = process;
        return WEFT_OK;
    }
    WEFT_TRY(use_keys(r, &r->config, r->section, &found));
    if (found)
        return WEFT_OK;
    WEFT_TRY(refuse_roles(r));
    if (environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
        environment("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
        return use_container(r);
    return use_instance(r);
}

/* The endpoint of S3: variables first, then "[services NAME] s3 =", then the profile's own. */
static const char *find_endpoint(const reading *r)
{
    const char *url = first_of(environment("AWS_ENDPOINT_URL_S3"), environment("AWS_ENDPOINT_URL"));
    const char *services = of_profile(r, "services");
    if (is_true(environment("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")) ||
        is_true(of_profile(r, "ignore_configured_endpoint_urls")))
        return NULL;
    if (!url && services) {
        const char *section = weft_arena_printf(r->arena, "services %s", services);
        url = section ? find(&r->config, section, "s3.endpoint_url") : NULL;
    }
    return first_of(url, of_profile(r, "endpoint_url"));
}

static weft_status choose_endpoint(reading *r)
{
    weft_aws_settings *s = r->out;
    const char *url = find_endpoint(r), *style = of_profile(r, "s3.addressing_style");
    const char *region =
        first_of(first_of(environment("AWS_REGION"), environment("AWS_DEFAULT_REGION")),
                 of_profile(r, "region"));
    s->region = weft_arena_strdup(r->arena, region ? region : "us-east-1");
    WEFT_TRY(WEFT_ALLOCATED(s->region, "the AWS settings"));
    /* the rule of the AWS tools: an endpoint of one's own has the bucket in the path */
    s->path_style = style && !strcmp(style, "path");
    if (!url)
        return WEFT_OK;
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return weft_error(WEFT_MSG_STORAGE_SETTINGS,
                          WEFT_AT(.key = "AWS_ENDPOINT_URL_S3", .value = url),
                          "\"%s\" is not a URL. Write http://HOST:PORT or https://HOST.", url);
    const char *authority = strstr(url, "://") + 3;
    if (!authority[strspn(authority, "/")] || strpbrk(authority, "@?#"))
        return weft_error(WEFT_MSG_STORAGE_SETTINGS, WEFT_AT(.key = "AWS_ENDPOINT_URL_S3"),
                          "the endpoint has no host, or has keys or a query. Write "
                          "http://HOST:PORT or https://HOST, and the keys in AWS_ACCESS_KEY_ID "
                          "and AWS_SECRET_ACCESS_KEY.");
    s->path_style = !style || strcmp(style, "virtual") != 0;
    char *copy = weft_arena_strdup(r->arena, url);
    WEFT_TRY(WEFT_ALLOCATED(copy, "the AWS settings"));
    for (size_t n = strlen(copy); n && copy[n - 1] == '/'; n--)
        copy[n - 1] = 0;
    s->endpoint = copy;
    return WEFT_OK;
}

static weft_status choose_attempts(reading *r)
{
    const char *text = first_of(environment("AWS_MAX_ATTEMPTS"), of_profile(r, "max_attempts"));
    int64_t attempts = 8;
    if (text && (!weft_parse_i64(text, &attempts) || attempts < 1))
        return weft_error(WEFT_MSG_STORAGE_SETTINGS,
                          WEFT_AT(.key = "AWS_MAX_ATTEMPTS", .value = text),
                          "\"%s\" is not a number of attempts; use 1 or more", text);
    r->out->attempts = attempts;
    return WEFT_OK;
}

weft_status weft_aws_settings_read(weft_arena *arena, weft_aws_settings *settings)
{
    weft_aws_settings s = {0};
    reading r = {.arena = arena, .out = &s};
    weft_status_code status = WEFT_OK;
    r.config.prefixed = true;
    WEFT_GO(locate(&r, "AWS_CONFIG_FILE", "config", &r.config));
    WEFT_GO(locate(&r, "AWS_SHARED_CREDENTIALS_FILE", "credentials", &r.credentials));
    WEFT_GO(choose_profile(&r));
    WEFT_GO(choose_endpoint(&r));
    WEFT_GO(choose_attempts(&r));
    WEFT_GO(choose_credentials(&r));
    *settings = s;
out:
    weft_free(r.config.setting);
    weft_free(r.credentials.setting);
    return status;
}
