/* Messages between ranks that a device sends itself, as operations of its streams. Their
 * data does not pass memory of the host, and the host does not wait. */
#ifndef WEFT_KERNEL_DEVICE_LINKS_H
#define WEFT_KERNEL_DEVICE_LINKS_H

#include "kernel/kernel.h"

enum { WEFT_LINK_ID_BYTES = 128 };

/* A device, as the other ranks of a group see it before they connect. */
typedef struct weft_link_endpoint {
    char device[16]; /* identity of the device, the same for ranks that share it */
    int32_t version; /* of the library; 0: this rank cannot connect */
} weft_link_endpoint;

typedef struct weft_link_id {
    char bytes[WEFT_LINK_ID_BYTES];
} weft_link_id;

/* This rank's end of the connections of a group. */
typedef struct weft_device_link weft_device_link;

/* A message to or from member `peer`, in memory of the device. */
typedef struct weft_link_message {
    int peer;
    bool receiving;
    void *data;
    int64_t bytes;
} weft_link_message;

/* An all_reduce, all_gather or reduce_scatter by the library, in an order of its own. `count`:
 * elements of this rank's part, of an all_reduce all. */
typedef struct weft_link_collective {
    weft_op op;
    weft_dtype dtype;
    const void *in;
    void *out;
    int64_t count;
} weft_link_collective;

struct weft_device_links {
    const char *name; /* of the library */
    /* Describes this rank's device; version 0 if the library is missing or switched off. */
    void (*describe)(const weft_device *device, weft_link_endpoint *endpoint);
    /* Creates the id of a group's connections, on one of its members. */
    weft_status_code (*create_id)(weft_link_id *id);
    /* Connects member `own` of `ranks`. Collective. */
    weft_status_code (*open)(const weft_link_id *id, int ranks, int own, weft_device_link **link);
    void (*close)(weft_device_link *link); /* after its work has ended; accepts NULL */
    /* Ends the work of the link, whatever other ranks do. Later work is an error. Any thread. */
    void (*abort)(weft_device_link *link);
    /* Returns the error of the connections, such as a peer that has exited. Any thread. */
    weft_status_code (*check)(weft_device_link *link);
    /* Adds messages to the work of the stream. All are under way at the same time. */
    void (*exchange)(weft_device_stream *stream, weft_device_link *link,
                     const weft_link_message *message, int count);
    /* Adds a collective. False: the library does not have it for this type. */
    bool (*collective)(weft_device_stream *stream, weft_device_link *link,
                       const weft_link_collective *collective);
};
typedef struct weft_device_links weft_device_links;

#endif
