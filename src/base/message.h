/* Classes of messages: every error, warning and log event has a class with a stable id, and names
 * the file, line, key, value and rank that it concerns. The table is message_classes.def. */
#ifndef WEFT_BASE_MESSAGE_H
#define WEFT_BASE_MESSAGE_H

#include <inttypes.h> /* PRId64 for the texts of all messages */
#include <stdbool.h>

typedef enum weft_message_class {
    WEFT_MSG_NONE = 0,
#define MESSAGE(symbol, id, status, cause, remedy) WEFT_MSG_##symbol,
#include "base/message_classes.def"
#undef MESSAGE
    WEFT_MSG_COUNT
} weft_message_class;

/* A further value of a message, which its text states, too. */
typedef struct weft_message_detail {
    const char *name; /* the member's name */
    double number;
    const char *text; /* NULL: the number */
} weft_message_detail;

/* The subject of a message. All members are optional and borrowed for the call. File, line and key
 * are printed before the text ("run.yaml:12: data.fps: ..."), so the text does not repeat them. */
typedef struct weft_message_fields {
    const char *file;  /* path of a file or folder; "path:12" sets the line, too */
    int64_t line;      /* line number from 1; 0 (default): none */
    const char *key;   /* config key, JSON member, option, environment variable or tensor */
    const char *value; /* the value that is wrong, as text */
    double number;     /* the value as a number; see WEFT_NUMBER */
    int rank;          /* the rank concerned; see WEFT_RANK */
    const weft_message_detail *details; /* up to one without a name; NULL (default): none */
    bool has_number, has_rank;
} weft_message_fields;

/* Fields of a call: WEFT_AT(.file = path, .line = line, .key = "data.fps", WEFT_NUMBER(fps)).
 * WEFT_NOWHERE: none. */
#define WEFT_AT(...)   (&(const weft_message_fields){__VA_ARGS__})
#define WEFT_NOWHERE   ((const weft_message_fields *)0)
#define WEFT_NUMBER(x) .number = (double)(x), .has_number = true
#define WEFT_RANK(x)   .rank = (x), .has_rank = true
/* Further fields of WEFT_AT: WEFT_DETAILS(WEFT_DETAIL("steps", steps), WEFT_WORD("axis", name)). An
 * error keeps the first WEFT_MESSAGE_DETAILS of them. */
#define WEFT_DETAILS(...)                                                                          \
    .details = (const weft_message_detail[])                                                       \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            NULL                                                                                   \
        }                                                                                          \
    }
#define WEFT_DETAIL(key, x)                                                                        \
    {                                                                                              \
        .name = (key), .number = (double)(x)                                                       \
    }
#define WEFT_WORD(key, word)                                                                       \
    {                                                                                              \
        .name = (key), .text = (word)                                                              \
    }
enum { WEFT_MESSAGE_DETAILS = 8 };

/* A key of a list, for WEFT_AT: weft_message_key((char[64]){0}, "stages.%d", 2). Returns key. */
const char *weft_message_key(char key[64], const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* "config-unknown-key"; "" for WEFT_MSG_NONE. */
const char *weft_message_id(weft_message_class kind);
/* The class of an id, or the class that a former id of message_former.def belongs to now.
 * WEFT_MSG_NONE: unknown. */
weft_message_class weft_message_find(const char *id);
/* Complete sentences; "" for WEFT_MSG_NONE. */
const char *weft_message_cause(weft_message_class kind);
const char *weft_message_remedy(weft_message_class kind);
/* What its errors return, as the number of a weft_status_code; 0: a warning or an event. */
int weft_message_status(weft_message_class kind);

/* Writes "FILE:LINE: KEY: " into place[size], without members that are not set. Returns place. */
const char *weft_message_location(const weft_message_fields *at, char *location, int64_t size);
/* One line of JSON (heap, free with weft_free; NULL: out of memory): {"level", "verb", "id",
 * "file", "line", "key", "value", "rank", "details", "message"}, without members that are not set.
 * "details" is an object. `verb` may be NULL. */
char *weft_message_json(const char *level, const char *verb, weft_message_class kind,
                        const weft_message_fields *at, const char *text);
/* WEFT_LOG_FORMAT=json: messages and progress on standard error are lines of JSON. */
bool weft_message_as_json(void);

#endif
