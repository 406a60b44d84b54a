/* store ROOT list | facts NAME | get NAME [AT BYTES] | put NAME | echo NAME | begin NAME |
 *            remove NAME | sum NAME | expect NAME | together NAME NAME | own | look | stream NAME
 * Operations of a storage. get writes to standard output, put reads from standard input, echo does
 * both, and begin writes without a commit. stream writes the bytes that a sink receives. expect announces a read of the whole file, and closes
 * the storage at the end of standard input. own claims the location until the end of standard
 * input: it prints "owned", and checks the claim after each line. look fails while another process
 * owns the location. together asks for the facts of two files in two threads. SIGTERM is handled as
 * in weft's verbs. Errors are printed as weft prints them; the exit status is the code. */
#include "base/interrupt.h"
#include "base/log.h"
#include "storage/bucket_owner.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_status list(weft_storage *s)
{
    weft_names names;
    WEFT_TRY(weft_storage_list(s, &names));
    for (int64_t i = 0; i < names.count; i++)
        puts(names.name[i]);
    weft_names_free(&names);
    return WEFT_OK;
}

static weft_status get(weft_storage *s, const char *name, const char *at, const char *bytes)
{
    weft_storage_facts facts;
    WEFT_TRY(weft_storage_facts_of(s, name, &facts));
    const int64_t first = at ? atoll(at) : 0, count = bytes ? atoll(bytes) : facts.bytes;
    char *data;
    WEFT_TRY(WEFT_NEW(data, count + 1, "%s", name));
    const weft_status_code status = weft_storage_read(s, name, first, count, data);
    if (status == WEFT_OK)
        fwrite(data, 1, (size_t)count, stdout);
    weft_free(data);
    return status;
}

static weft_status keep(void *user, int64_t at, const void *data, int64_t bytes)
{
    memcpy((char *)user + at, data, (size_t)bytes);
    return WEFT_OK;
}

static weft_status stream(weft_storage *s, const char *name)
{
    weft_storage_facts facts;
    char *data;
    WEFT_TRY(weft_storage_facts_of(s, name, &facts));
    WEFT_TRY(WEFT_NEW(data, facts.bytes + 1, "%s", name));
    const weft_byte_sink sink = {keep, data};
    const weft_status_code status = weft_storage_stream(s, name, 0, facts.bytes, &sink);
    if (status == WEFT_OK)
        fwrite(data, 1, (size_t)facts.bytes, stdout);
    weft_free(data);
    return status;
}

static weft_status put(weft_storage *s, const char *name, bool commit)
{
    static char piece[1 << 20];
    weft_storage_file *file;
    WEFT_TRY(weft_storage_begin(s, name, &file));
    weft_status_code status = WEFT_OK;
    for (size_t n; status == WEFT_OK && (n = fread(piece, 1, sizeof piece, stdin)) > 0;)
        status = weft_storage_write(file, piece, (int64_t)n);
    if (status == WEFT_OK && commit)
        status = weft_storage_commit(file);
    weft_storage_file_free(file);
    return status;
}

typedef struct question {
    weft_storage *storage;
    const char *name;
    weft_storage_facts facts;
    weft_status_code status;
} question;

static void *ask(void *user)
{
    question *q = user;
    q->status = weft_storage_facts_of(q->storage, q->name, &q->facts);
    return NULL;
}

static weft_status together(weft_storage *s, const char *first, const char *second)
{
    question one = {.storage = s, .name = first}, two = {.storage = s, .name = second};
    pthread_t thread;
    if (pthread_create(&thread, NULL, ask, &one) != 0)
        return weft_no_memory("a thread");
    ask(&two);
    pthread_join(thread, NULL);
    WEFT_TRY(one.status);
    WEFT_TRY(two.status);
    printf("%" PRId64 " %" PRId64 "\n", one.facts.bytes, two.facts.bytes);
    return WEFT_OK;
}

/* Prints the times of the first and the last moment as the owner, for tests of exclusion. */
static weft_status own(const char *root)
{
    weft_bucket_owner *owner;
    int c;
    WEFT_TRY(weft_bucket_owner_open(root, NULL, root, false, &owner));
    printf("owned %.6f\n", weft_now());
    fflush(stdout);
    weft_status_code status = WEFT_OK;
    while (status == WEFT_OK && (c = getchar()) != EOF)
        if (c == '\n')
            status = weft_bucket_owner_check(owner);
    printf("ended %.6f\n", weft_now());
    weft_bucket_owner_close(owner);
    return status;
}

static weft_status look(const char *root)
{
    weft_bucket_owner *owner;
    WEFT_TRY(weft_bucket_owner_open_shared(root, false, &owner));
    weft_bucket_owner_close(owner);
    return WEFT_OK;
}

static weft_status run(weft_storage *s, int count, char **word)
{
    const char *verb = word[2], *name = count > 3 ? word[3] : "";
    weft_storage_facts facts;
    uint64_t sum;
    if (!strcmp(verb, "list"))
        return list(s);
    if (!strcmp(verb, "get"))
        return get(s, name, count > 4 ? word[4] : NULL, count > 5 ? word[5] : NULL);
    if (!strcmp(verb, "stream"))
        return stream(s, name);
    if (!strcmp(verb, "put") || !strcmp(verb, "begin"))
        return put(s, name, !strcmp(verb, "put"));
    if (!strcmp(verb, "echo")) {
        WEFT_TRY(put(s, name, true));
        return get(s, name, NULL, NULL);
    }
    if (!strcmp(verb, "remove"))
        return weft_storage_remove(s, name);
    if (!strcmp(verb, "own"))
        return own(word[1]);
    if (!strcmp(verb, "look"))
        return look(word[1]);
    if (!strcmp(verb, "together") && count > 4)
        return together(s, name, word[4]);
    if (!strcmp(verb, "expect")) {
        WEFT_TRY(weft_storage_facts_of(s, name, &facts));
        weft_storage_expect(s, name, 0, facts.bytes);
        while (getchar() != EOF)
            ;
        return WEFT_OK;
    }
    if (!strcmp(verb, "sum")) {
        WEFT_TRY(weft_storage_sum(s, name, &sum));
        printf("%016" PRIx64 "\n", sum);
        return WEFT_OK;
    }
    WEFT_TRY(weft_storage_facts_of(s, name, &facts));
    printf("%" PRId64 "\n", facts.bytes);
    return WEFT_OK;
}

int main(int count, char **word)
{
    weft_storage *storage = NULL;
    if (count < 3)
        return 2;
    weft_interrupt_catch();
    weft_status_code status = weft_storage_open(word[1], &storage);
    if (status == WEFT_OK)
        status = run(storage, count, word);
    if (status != WEFT_OK) {
        char *line = weft_message_json("error", NULL, weft_error_class(), weft_error_fields(),
                                       weft_error_text());
        fprintf(stderr, "%s\n", line ? line : "");
        weft_free(line);
    }
    weft_storage_close(storage);
    return (int)status;
}
