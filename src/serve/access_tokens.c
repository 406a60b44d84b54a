#include "serve/access_tokens.h"

#include "base/fs.h"
#include "base/hex.h"
#include "storage/sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { TOKEN_BYTES = 24, FILE_LIMIT = 1 << 20, NAME_LIMIT = WEFT_TOKEN_NAME };

weft_status weft_random_hex(int bytes, char *hex)
{
    unsigned char value[32];
    if (getrandom(value, (size_t)bytes, 0) != bytes)
        return weft_error_errno(WEFT_NOWHERE, "the system gives no random bytes");
    weft_hex_write(value, bytes, hex);
    return WEFT_OK;
}

/* "HASH", or "HASH jobs=4 seconds=3600" with one or both limits in this order. */
static bool read_values(char *text, weft_token_limits *limits)
{
    if (!weft_hex_starts(text, 64))
        return false;
    char *at = text + 64;
    if (!strncmp(at, " jobs=", 6))
        limits->jobs = strtoll(at + 6, &at, 10);
    if (!strncmp(at, " seconds=", 9))
        limits->seconds = strtod(at + 9, &at);
    return *at == '\0' && limits->jobs >= 0 && limits->seconds >= 0;
}

static weft_status add_line(weft_access_tokens *t, char *line, const char *path, int64_t number)
{
    char *space = strchr(line, ' ');
    weft_token_limits limits = {0};
    if (!space || !read_values(space + 1, &limits))
        return weft_error(WEFT_MSG_SERVER_TOKEN, WEFT_AT(.file = path, .line = number),
                          "the line is not NAME, a SHA-256 of 64 digits, and its limits, if any");
    WEFT_TRY(weft_grow((void **)&t->at, t->count, &t->capacity, sizeof *t->at));
    weft_access_token *token = &t->at[t->count++];
    snprintf(token->hash, sizeof token->hash, "%.64s", space + 1);
    token->limits = limits;
    snprintf(token->name, sizeof token->name, "%.*s", (int)(space - line), line);
    return WEFT_OK;
}

static weft_status read_file(const char *path, weft_access_tokens *t)
{
    char *data, *line, *next;
    int64_t bytes, number = 1;
    weft_status_code status = WEFT_OK;
    if (!weft_path_exists(path))
        return WEFT_OK;
    WEFT_TRY(weft_file_read(path, FILE_LIMIT, &data, &bytes));
    for (line = data; *line; line = next, number++) {
        next = line + strcspn(line, "\n");
        if (*next)
            *next++ = '\0';
        if (*line)
            WEFT_GO(add_line(t, line, path, number));
    }
out:
    weft_free(data);
    return status;
}

weft_status weft_access_tokens_read(const char *folder, weft_access_tokens *t)
{
    char *path = weft_path_join(folder, "tokens");
    WEFT_TRY(WEFT_ALLOCATED(path, "the tokens"));
    const weft_status_code status = read_file(path, t);
    weft_free(path);
    return status;
}

void weft_access_tokens_free(weft_access_tokens *t)
{
    weft_free(t->at);
    *t = (weft_access_tokens){0};
}

const char *weft_access_tokens_name(const weft_access_tokens *t, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    char hash[WEFT_SHA256_HEX];
    const char *name = NULL;
    if (!authorization || strncmp(authorization, scheme, sizeof scheme - 1) != 0)
        return NULL;
    const char *token = authorization + sizeof scheme - 1;
    if (weft_sha256_hex(token, (int64_t)strlen(token), hash) != WEFT_OK)
        return NULL;
    for (int64_t i = 0; i < t->count; i++) { /* the time does not depend on the position */
        unsigned char differs = 0;
        for (int k = 0; k < 64; k++)
            differs |= (unsigned char)(hash[k] ^ t->at[i].hash[k]);
        name = differs ? name : t->at[i].name;
    }
    return name;
}

weft_token_limits weft_access_tokens_limits(const weft_access_tokens *t, const char *name)
{
    for (int64_t i = 0; name && i < t->count; i++)
        if (!strcmp(t->at[i].name, name))
            return t->at[i].limits;
    return (weft_token_limits){0};
}

static weft_status check_name(const char *name)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    const size_t length = strlen(name);
    if (length == 0 || length > NAME_LIMIT || strspn(name, legal) != length)
        return weft_error(WEFT_MSG_SERVER_TOKEN, WEFT_AT(.key = "--new-token", .value = name),
                          "use 1 to %d letters, digits, '-', '_' and '.'", NAME_LIMIT);
    return WEFT_OK;
}

/* The file with a line more. Rejects a name that has a token. */
static weft_status extend(const char *path, const char *name, const char *values, weft_buf *out)
{
    char *data, start[NAME_LIMIT + 2];
    int64_t bytes;
    snprintf(start, sizeof start, "%s ", name);
    if (weft_path_exists(path)) {
        WEFT_TRY(weft_file_read(path, FILE_LIMIT, &data, &bytes));
        for (const char *line = data; line;
             line = strchr(line, '\n'), line = line ? line + 1 : NULL)
            if (!strncmp(line, start, strlen(start))) {
                weft_free(data);
                return weft_error(WEFT_MSG_SERVER_TOKEN,
                                  WEFT_AT(.key = "--new-token", .value = name),
                                  "a token has this name. Choose another name, or remove the line "
                                  "from the file `tokens` in the state folder.");
            }
        weft_buf_append(out, data, bytes);
        if (bytes && data[bytes - 1] != '\n') /* an editor omitted it */
            weft_buf_append(out, "\n", 1);
        weft_free(data);
    }
    weft_buf_printf(out, "%s%s\n", start, values);
    return weft_buf_check(out);
}

weft_status weft_access_tokens_create(const char *folder, const char *name,
                                      const weft_token_limits *limits, char token[64])
{
    char hash[WEFT_SHA256_HEX], values[160];
    weft_buf lines = {0};
    char *path = weft_path_join(folder, "tokens");
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(path, "the tokens"));
    WEFT_GO(check_name(name));
    WEFT_GO(weft_make_dirs(folder));
    strcpy(token, "weft-");
    WEFT_GO(weft_random_hex(TOKEN_BYTES, token + 5));
    WEFT_GO(weft_sha256_hex(token, (int64_t)strlen(token), hash));
    int length = snprintf(values, sizeof values, "%s", hash);
    if (limits->jobs > 0)
        length += snprintf(values + length, 32, " jobs=%" PRId64, limits->jobs);
    if (limits->seconds > 0)
        snprintf(values + length, 32, " seconds=%.15g", limits->seconds);
    WEFT_GO(extend(path, name, values, &lines));
    WEFT_GO(weft_file_write_atomic(path, lines.data, lines.len));
out:
    weft_buf_free(&lines);
    weft_free(path);
    return status;
}
