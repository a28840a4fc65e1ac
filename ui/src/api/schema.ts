// Written by `npm run api-types` from the frontend's OpenAPI document; not by hand.
export interface paths {
    "/api/node/register": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Register */
        post: operations["register_api_node_register_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/node/{node_id}/heartbeat": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Heartbeat */
        post: operations["heartbeat_api_node__node_id__heartbeat_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/node/{node_id}/drain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Drain */
        post: operations["drain_api_node__node_id__drain_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/node/{node_id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume */
        post: operations["resume_api_node__node_id__resume_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/node/{node_id}/deregister": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Deregister */
        post: operations["deregister_api_node__node_id__deregister_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/node/{node_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Deregister */
        delete: operations["deregister_by_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/node/{node_id}/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Models
         * @description Replicas there, each with its open requests on all frontends: a worker that stops waits for them.
         */
        get: operations["models_api_node__node_id__models_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/scheduling": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List Scheduling */
        get: operations["list_scheduling_api_nodes_scheduling_get"];
        put?: never;
        /** Save Scheduling */
        post: operations["save_scheduling_api_nodes_scheduling_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/scheduling/{model}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show Scheduling */
        get: operations["show_scheduling_api_nodes_scheduling__model__get"];
        put?: never;
        post?: never;
        /** Delete Scheduling */
        delete: operations["delete_scheduling_api_nodes_scheduling__model__delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Loaded
         * @description What serves now, on healthy nodes.
         */
        get: operations["list_loaded_api_nodes_models_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/replicas": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List Replicas */
        get: operations["list_replicas_api_replicas_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/replicas/summary": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Summarise Replicas
         * @description By model: how many replicas there are and are wanted, where they are, and what its loads wait for.
         */
        get: operations["summarise_replicas_api_replicas_summary_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List On Node */
        get: operations["list_on_node_api_nodes__node_id__models_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/models/unload": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Unload On Node */
        post: operations["unload_on_node_api_nodes__node_id__models_unload_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/models/delete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Delete On Node
         * @description Its files too, when the process is gone.
         */
        post: operations["delete_on_node_api_nodes__node_id__models_delete_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/{name}/fit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show Fit
         * @description Whether one more replica would find a place now, and if not, why.
         */
        get: operations["show_fit_api_models__name__fit_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/{name}/load": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Load Model */
        post: operations["load_model_api_models__name__load_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/{name}/unload": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Unload Model */
        post: operations["unload_model_api_models__name__unload_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/{name}/load-status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show Load Status */
        get: operations["show_load_status_api_models__name__load_status_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/why/models/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Why Model
         * @description Decisions, newest first; loads that wait or failed, and where; what runs; what is wanted.
         */
        get: operations["why_model_api_why_models__name__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/why/nodes/{node_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Why Node */
        get: operations["why_node_api_why_nodes__node_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/why/requests/{request_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Why Request
         * @description By the `x-request-id` of its answer, at any frontend. What it waited for is told with the decision.
         */
        get: operations["why_request_api_why_requests__request_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/backend-logs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Logs
         * @description The processes that wrote something: `model#replica`.
         */
        get: operations["list_logs_api_nodes__node_id__backend_logs_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/backend-logs/{key}/follow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow Log
         * @description Server-sent events: `{"type": "initial", "lines": [...]}`, then `{"type": "line", "line": {...}}` for each
         *     line; one that the worker could not be asked ends with `{"type": "error", "message": ...}`.
         */
        get: operations["follow_log_api_nodes__node_id__backend_logs__key__follow_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/backend-logs/{key}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Read Log
         * @description The last lines of one process, or of all replicas of a model.
         */
        get: operations["read_log_api_nodes__node_id__backend_logs__key__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List Nodes */
        get: operations["list_nodes_api_nodes_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show Node */
        get: operations["show_node_api_nodes__node_id__get"];
        put?: never;
        post?: never;
        /** Remove Node */
        delete: operations["remove_node_api_nodes__node_id__delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/approve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Approve Node
         * @description A pending machine; or, with `claim`, another machine that replaces the one that has the name.
         */
        post: operations["approve_node_api_nodes__node_id__approve_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/reject": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Reject Claim
         * @description A machine that claims to be this node and is not: it is told so; the node goes on as it is.
         */
        post: operations["reject_claim_api_nodes__node_id__reject_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/drain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Drain Node */
        post: operations["drain_node_api_nodes__node_id__drain_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Resume Node */
        post: operations["resume_node_api_nodes__node_id__resume_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/labels": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show Labels */
        get: operations["show_labels_api_nodes__node_id__labels_get"];
        /** Replace Labels */
        put: operations["replace_labels_api_nodes__node_id__labels_put"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /** Merge Labels */
        patch: operations["merge_labels_api_nodes__node_id__labels_patch"];
        trace?: never;
    };
    "/api/nodes/{node_id}/labels/{key}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /** Delete Label */
        delete: operations["delete_label_api_nodes__node_id__labels__key__delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/max-replicas-per-model": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Set Max Replicas */
        put: operations["set_max_replicas_api_nodes__node_id__max_replicas_per_model_put"];
        post?: never;
        /** Reset Max Replicas */
        delete: operations["reset_max_replicas_api_nodes__node_id__max_replicas_per_model_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/vram-budget": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /** Set Vram Budget */
        put: operations["set_vram_budget_api_nodes__node_id__vram_budget_put"];
        post?: never;
        /** Reset Vram Budget */
        delete: operations["reset_vram_budget_api_nodes__node_id__vram_budget_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List Keys */
        get: operations["list_keys_api_keys_get"];
        put?: never;
        /** Create Key */
        post: operations["create_key_api_keys_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/keys/{id_or_name}/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Change Key Models
         * @description Which models the key may use; `null` is all. In force on every frontend within five seconds.
         */
        put: operations["change_key_models_api_keys__id_or_name__models_put"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/keys/{id_or_name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * Revoke Key
         * @description Refused by this frontend from the answer on, by every other within five seconds; within a minute by one that
         *     has lost the store and the message bus.
         */
        delete: operations["revoke_key_api_keys__id_or_name__delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show Session
         * @description Null where nobody is signed in, which a page may ask; a key that is sent and not known is refused.
         */
        get: operations["show_session_api_session_get"];
        put?: never;
        /** Sign In */
        post: operations["sign_in_api_session_post"];
        /** Sign Out */
        delete: operations["sign_out_api_session_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Audit
         * @description Newest first; `before` an id for the page after; `since` an age (`2h`) or a time.
         */
        get: operations["list_audit_api_audit_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Usage
         * @description Requests that were answered and their tokens, of the last `days` days; `by` may be repeated. Counts arrive
         *     a few seconds late.
         */
        get: operations["list_usage_api_usage_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Metrics
         * @description Requests, times, tokens, queues and open requests by model and node, and how the nodes are, in Prometheus's
         *     text form.
         */
        get: operations["metrics_metrics_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/status": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show Status */
        get: operations["show_status_api_status_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/join-command": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show Join Command */
        get: operations["show_join_command_api_join_command_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Follow Events
         * @description Server-sent events; resumes from the header Last-Event-ID. `kinds`: only these, separated by commas.
         */
        get: operations["follow_events_api_events_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/overview": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show Overview
         * @description What all frontends together answered.
         */
        get: operations["show_overview_api_overview_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show History
         * @description What all frontends together answered with it, and the memory it had in use.
         */
        get: operations["show_history_api_nodes__node_id__history_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Operations
         * @description What runs, and what failed and was not dismissed.
         */
        get: operations["list_operations_api_operations_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operations/history": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List History
         * @description The last fifty that ended, newest first.
         */
        get: operations["list_history_api_operations_history_get"];
        put?: never;
        post?: never;
        /** Clear History */
        delete: operations["clear_history_api_operations_history_delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operations/{operation_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show Operation */
        get: operations["show_operation_api_operations__operation_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operations/{operation_id}/retry": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Retry Operation
         * @description Failed nodes, or one of them, are tried again now, with all attempts before them.
         */
        post: operations["retry_operation_api_operations__operation_id__retry_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operations/{operation_id}/cancel": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Cancel Operation
         * @description From any frontend; what workers have begun is stopped there. What they have downloaded so far is kept for at
         *     least a day, and a retry continues from it.
         */
        post: operations["cancel_operation_api_operations__operation_id__cancel_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operations/{operation_id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause Operation
         * @description As cancel; a retry within a day continues with what was downloaded so far.
         */
        post: operations["pause_operation_api_operations__operation_id__pause_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/operations/{operation_id}/dismiss": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Dismiss Operation */
        post: operations["dismiss_operation_api_operations__operation_id__dismiss_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/job/{operation_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show Backend Job
         * @description As LocalAI's UI asks for it; there, a job nobody knows yet is one that waits.
         */
        get: operations["show_backend_job_api_backends_job__operation_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/jobs/{operation_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show Job */
        get: operations["show_job_backends_jobs__operation_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/jobs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List Jobs */
        get: operations["list_jobs_backends_jobs_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/delete/{element}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Delete
         * @description It holds: no load brings the backend back. Answers which models that ends.
         */
        post: operations["delete_api_backends_delete__element__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/uses/{element}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Show Uses
         * @description Changes nothing: which models use it, and how many of their replicas its deletion would stop.
         */
        post: operations["show_uses_api_backends_uses__element__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/install-external": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Install External
         * @description From a location outside the galleries.
         */
        post: operations["install_external_api_backends_install_external_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/install/{element}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Install
         * @description By name, `name` or `gallery@name`: on every node that a build fits, now and for machines that come later.
         */
        post: operations["install_api_backends_install__element__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/upgrade/{element}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Upgrade
         * @description To what the galleries offer now, on the nodes that have it.
         */
        post: operations["upgrade_api_backends_upgrade__element__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/{element}/rollback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Rollback
         * @description To the version before, which is still on the nodes' disks: nothing is fetched.
         */
        post: operations["rollback_api_backends__element__rollback_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/apply": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Apply */
        post: operations["apply_backends_apply_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/delete/{element}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Apply Delete */
        post: operations["apply_delete_backends_delete__element__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/upgrade/{element}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Apply Upgrade */
        post: operations["apply_upgrade_backends_upgrade__element__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/upgrades": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Upgrades
         * @description By backend: what nodes have, and what the galleries offer.
         */
        get: operations["list_upgrades_api_backends_upgrades_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/upgrades/check": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Check Upgrades
         * @description Has galleries and registries asked anew, in the background; with `wait`, answers when they were, or after a
         *     quarter of a minute.
         */
        post: operations["check_upgrades_api_backends_upgrades_check_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/upgrades": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Upgrades
         * @description By backend: what nodes have, and what the galleries offer.
         */
        get: operations["list_upgrades_backends_upgrades_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/upgrades/check": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Check Upgrades
         * @description Has galleries and registries asked anew, in the background; with `wait`, answers when they were, or after a
         *     quarter of a minute.
         */
        post: operations["check_upgrades_backends_upgrades_check_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/upgrades/unchecked": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Unchecked
         * @description By backend: nodes of which nobody can tell whether there is something newer, each with the reason.
         */
        get: operations["list_unchecked_api_backends_upgrades_unchecked_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/upgrades/apply": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Upgrade All
         * @description Everything that has an upgrade, but for nodes that were rolled back from it; answers the operation of each
         *     backend, and why there is none of some (`refused`): they are frozen, or went meanwhile.
         */
        post: operations["upgrade_all_api_backends_upgrades_apply_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/backends": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Node Backends
         * @description As the node last told; `[]` for one that runs no backends.
         */
        get: operations["list_node_backends_api_nodes__node_id__backends_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/backends/install": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Install */
        post: operations["install_api_nodes__node_id__backends_install_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/backends/upgrade": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Upgrade */
        post: operations["upgrade_api_nodes__node_id__backends_upgrade_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/nodes/{node_id}/backends/delete": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Delete
         * @description Waits for the end; 202 when the node is away and it has to be done later.
         */
        post: operations["delete_api_nodes__node_id__backends_delete_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/system/delete/{element}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Delete Everywhere */
        post: operations["delete_everywhere_api_backends_system_delete__element__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/fleet/backends": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Fleet Backends
         * @description Every backend, and on which node it is in which version.
         */
        get: operations["list_fleet_backends_api_fleet_backends_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Policies
         * @description What must be on, or off, every node a selector fits, now and for machines that come later; and the machines
         *     on which something else was asked for since.
         */
        get: operations["list_policies_api_policies_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/policies/{policy_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        /**
         * End Policy
         * @description It holds no longer. Nothing is installed or deleted by this.
         */
        delete: operations["end_policy_api_policies__policy_id__delete"];
        options?: never;
        head?: never;
        /** Change Policy */
        patch: operations["change_policy_api_policies__policy_id__patch"];
        trace?: never;
    };
    "/api/intents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Intents
         * @description Orders, open and ended, newest first.
         */
        get: operations["list_intents_api_intents_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/available": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Offers
         * @description Families and single backends; with `everything` also their parts and development builds.
         */
        get: operations["list_offers_api_backends_available_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/galleries/refresh": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Refresh
         * @description Asks every gallery for news now.
         */
        post: operations["refresh_api_galleries_refresh_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Page */
        get: operations["page_api_backends_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Installed */
        get: operations["installed_backends_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/available": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Available */
        get: operations["available_backends_available_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/known": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Known */
        get: operations["known_backends_known_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/galleries": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Galleries */
        get: operations["galleries_backends_galleries_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/available": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Available
         * @description What galleries offer.
         */
        get: operations["list_available_api_models_available_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/install": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Install Model
         * @description Adds a gallery's model. The machines that are to serve it fetch its files when it is first loaded.
         */
        post: operations["install_model_api_models_install_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/import": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Import Models
         * @description Adds every model configuration that lies in the frontend's models directory.
         */
        post: operations["import_models_api_models_import_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List Models */
        get: operations["list_models_api_models_get"];
        put?: never;
        /** Add Model */
        post: operations["add_model_api_models_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/{name}/revisions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Revisions
         * @description Newest first. A deletion has an empty configuration.
         */
        get: operations["list_revisions_api_models__name__revisions_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** Show Model */
        get: operations["show_model_api_models__name__get"];
        /**
         * Edit Model
         * @description Checked before it is taken. Where replicas serve and would have to be loaded anew, it is `pending` until one
         *     of it is ready; those of the configuration before serve until then.
         */
        put: operations["edit_model_api_models__name__put"];
        post?: never;
        /** Delete Model */
        delete: operations["delete_model_api_models__name__delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/{name}/revert": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Revert Model
         * @description Back to an earlier configuration. A pending one is discarded, and what serves stays as it is.
         */
        post: operations["revert_model_api_models__name__revert_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** ApplyBody */
        ApplyBody: {
            /**
             * Nodes
             * @default []
             */
            nodes: string[];
            /**
             * Selector
             * @default {}
             */
            selector: {
                [key: string]: string;
            };
            /**
             * Force
             * @default false
             */
            force: boolean;
            on_drift?: components["schemas"]["OnDrift"] | null;
            /** Id */
            id: string;
        };
        /** Approved */
        Approved: {
            /** Id */
            id: string;
            /** Name */
            name: string;
            /** Node Type */
            node_type: string;
            /** Status */
            status: string;
            /** Message */
            message: string;
        };
        /** AuditEntry */
        AuditEntry: {
            /** Id */
            id: number;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /** Actor */
            actor: string;
            /** Action */
            action: string;
            /** Subject */
            subject: string;
            /** Detail */
            detail: {
                [key: string]: unknown;
            };
            /** Names */
            names: {
                [key: string]: string;
            };
        };
        /** AvailableBackends */
        AvailableBackends: {
            /** Backends */
            backends: components["schemas"]["BackendOffer"][];
            /** Nodes */
            nodes: components["schemas"]["NodeOffer"][];
            /** Galleries */
            galleries: components["schemas"]["GalleryView"][];
        };
        /** AvailableModel */
        AvailableModel: {
            /** Name */
            name: string;
            /** Gallery */
            gallery: string;
            /** Description */
            description: string;
            /** Backend */
            backend: string;
            /** License */
            license: string;
            /** Icon */
            icon: string;
            /** Urls */
            urls: string[];
            /** Tags */
            tags: string[];
            /** Size */
            size: string;
            /** Installed */
            installed: boolean;
        };
        /** AvailablePage */
        AvailablePage: {
            /** Models */
            models: components["schemas"]["AvailableModel"][];
            /** Total */
            total: number;
            /** Galleries */
            galleries: components["schemas"]["GalleryView"][];
        };
        /** BackendOffer */
        BackendOffer: {
            /** Id */
            id: string;
            /** Name */
            name: string;
            /** Gallery */
            gallery: string;
            /** Description */
            description: string;
            /** Tags */
            tags: string[];
            /** License */
            license: string;
            /** Icon */
            icon: string;
            /** Urls */
            urls: string[];
            /** Alias */
            alias: string;
            /** Version */
            version: string;
            /** Size Bytes */
            size_bytes: number | null;
            /** Is Meta */
            is_meta: boolean;
            /** Is Development */
            is_development: boolean;
            /** Installed On */
            installed_on: number;
            /** Variants */
            variants: components["schemas"]["VariantOffer"][];
        };
        /** BusStatus */
        BusStatus: {
            /** Url */
            url: string;
            /** Connected */
            connected: boolean;
            /** Problem */
            problem: string;
        };
        /**
         * By
         * @enum {string}
         */
        By: "day" | "key" | "model" | "node";
        /**
         * ClaimView
         * @description A machine that registered under the name of another one.
         */
        ClaimView: {
            /** Id */
            id: string;
            /**
             * Address
             * @description Where it registered from.
             */
            address: string;
            /**
             * Http Address
             * @description Where it says that it can be reached.
             */
            http_address: string;
            /**
             * Localai
             * @description A LocalAI worker, which has no secret of its own.
             */
            localai: boolean;
            /**
             * Made At
             * Format: date-time
             */
            made_at: string;
            /**
             * Seen At
             * Format: date-time
             */
            seen_at: string;
        };
        /** ConditionView */
        ConditionView: {
            /**
             * Kind
             * @description disk_pressure, data_directory, clock_skew or ports_exhausted.
             */
            kind: string;
            /** Reason */
            reason: string;
            /** Remedy */
            remedy: string;
        };
        /** ConfigText */
        ConfigText: {
            /** Config */
            config: string;
            /**
             * Force
             * @default false
             */
            force: boolean;
        };
        /** ConflictView */
        ConflictView: {
            /** Message */
            message: string;
            /**
             * At
             * Format: date-time
             */
            at: string;
        };
        /** CreatedKey */
        CreatedKey: {
            /** Id */
            id: string;
            /** Name */
            name: string;
            scope: components["schemas"]["Scope"];
            /** Hint */
            hint: string;
            /**
             * Created At
             * Format: date-time
             */
            created_at: string;
            /** Created By */
            created_by: string;
            /** Revoked At */
            revoked_at: string | null;
            /** Models */
            models: string[] | null;
            /** Key */
            key: string;
        };
        /** Deleting */
        Deleting: {
            /** Models */
            models: components["schemas"]["ModelUse"][];
            /** Consequence */
            consequence: string;
            /** Jobid */
            jobID: string;
            /** Message */
            message: string;
            /** Uuid */
            uuid: string;
            /** Statusurl */
            statusUrl: string;
        };
        /**
         * ExceptionCause
         * @enum {string}
         */
        ExceptionCause: "deleted" | "installed" | "called_off" | "no_build";
        /**
         * ExceptionView
         * @description A machine the policy is for and does not hold on.
         */
        ExceptionView: {
            /** Node Id */
            node_id: string;
            /** Node Name */
            node_name: string;
            cause: components["schemas"]["ExceptionCause"];
            /** Backend */
            backend: string;
            /** Verb */
            verb: string;
            /** Done */
            done: boolean;
            /** By */
            by: string;
            /** At */
            at: string | null;
            /** Operation Id */
            operation_id: string;
            /** Reason */
            reason: string;
        };
        /** ExternalBody */
        ExternalBody: {
            /**
             * Nodes
             * @default []
             */
            nodes: string[];
            /**
             * Selector
             * @default {}
             */
            selector: {
                [key: string]: string;
            };
            /**
             * Force
             * @default false
             */
            force: boolean;
            on_drift?: components["schemas"]["OnDrift"] | null;
            /** Uri */
            uri: string;
            /**
             * Name
             * @default
             */
            name: string;
            /**
             * Alias
             * @default
             */
            alias: string;
        };
        /** FrontendStatus */
        FrontendStatus: {
            /** Id */
            id: string;
            /** Url */
            url: string;
            /** Version */
            version: string;
            /** Age S */
            age_s: number;
        };
        /** GalleryView */
        GalleryView: {
            /** Name */
            name: string;
            /** Url */
            url: string;
            /** Entries */
            entries: number;
            /** Age S */
            age_s: number;
            /** Problem */
            problem: string;
        };
        /** GpuView */
        GpuView: {
            /** Name */
            name: string | null;
            /** Vendor */
            vendor: string;
            /** Memory Total Bytes */
            memory_total_bytes: number | null;
            /** Memory Free Bytes */
            memory_free_bytes: number | null;
            /** Unified */
            unified: boolean;
        };
        /** HTTPValidationError */
        HTTPValidationError: {
            /** Detail */
            detail?: components["schemas"]["ValidationError"][];
        };
        /**
         * HeldVersionView
         * @description What a rollback of the fleet has machines get that come later, until a newer version is asked for.
         */
        HeldVersionView: {
            /** Variant */
            variant: string;
            /** Version */
            version: string;
            /** Digest */
            digest: string;
            /** Operation Id */
            operation_id: string;
        };
        /** History */
        History: {
            /** Operations */
            operations: components["schemas"]["HistoryEntry"][];
        };
        /** HistoryEntry */
        HistoryEntry: {
            /** Id */
            id: string;
            /** Name */
            name: string;
            /** Jobid */
            jobID: string;
            /** Isbackend */
            isBackend: boolean;
            /** Nodeid */
            nodeID: string | null;
            /** Tasktype */
            taskType: string;
            /** Outcome */
            outcome: string;
            /** Error */
            error: string;
            /** Startedat */
            startedAt: string | null;
            /** Finishedat */
            finishedAt: string | null;
            /** Actor */
            actor: string;
            /** Cause */
            cause: string;
            /** Verb */
            verb: string;
            /** Nodes */
            nodes: string[];
            /** Node Count */
            node_count: number;
        };
        /** Import */
        Import: {
            /**
             * Directory
             * @default
             */
            directory: string;
            /**
             * Replace
             * @default false
             */
            replace: boolean;
            /**
             * Force
             * @default false
             */
            force: boolean;
        };
        /** Imported */
        Imported: {
            /** Directory */
            directory: string;
            /** Saved */
            saved: string[];
            /** Unchanged */
            unchanged: string[];
            /** Refused */
            refused: components["schemas"]["RefusedImport"][];
        };
        /** InstallBody */
        InstallBody: {
            /**
             * Nodes
             * @default []
             */
            nodes: string[];
            /**
             * Selector
             * @default {}
             */
            selector: {
                [key: string]: string;
            };
            /**
             * Force
             * @default false
             */
            force: boolean;
            on_drift?: components["schemas"]["OnDrift"] | null;
        };
        /** Installation */
        Installation: {
            /** Name */
            name: string;
            /**
             * As
             * @default
             */
            as: string;
            /**
             * Overrides
             * @default {}
             */
            overrides: {
                [key: string]: unknown;
            };
        };
        /** IntentView */
        IntentView: {
            /** Id */
            id: string;
            /** Node Id */
            node_id: string;
            /** Backend */
            backend: string;
            /** Verb */
            verb: string;
            /** State */
            state: string;
            /** Generation */
            generation: number;
            /** Operation Id */
            operation_id: string;
            /** Variant */
            variant: string;
            /** Digest */
            digest: string;
            /** Attempts */
            attempts: number;
            /** Error */
            error: string;
            /** Due At */
            due_at: string | null;
            /** Finished At */
            finished_at: string | null;
            /** Newest */
            newest: boolean;
        };
        /** JoinCommand */
        JoinCommand: {
            /** Url */
            url: string;
            /** Token */
            token: string;
            /** Command */
            command: string;
        };
        /** KeyModels */
        KeyModels: {
            /** Models */
            models: string[] | null;
        };
        /** KeyView */
        KeyView: {
            /** Id */
            id: string;
            /** Name */
            name: string;
            scope: components["schemas"]["Scope"];
            /** Hint */
            hint: string;
            /**
             * Created At
             * Format: date-time
             */
            created_at: string;
            /** Created By */
            created_by: string;
            /** Revoked At */
            revoked_at: string | null;
            /** Models */
            models: string[] | null;
        };
        /** LoadRequest */
        LoadRequest: {
            /**
             * Wait S
             * @default 0
             */
            wait_s: number;
            /**
             * Node
             * @default
             */
            node: string;
            /**
             * Retry
             * @default false
             */
            retry: boolean;
        };
        /** LocalAiStarted */
        LocalAiStarted: {
            /** Id */
            id: string;
            /** Status Url */
            status_url: string;
        };
        /** MaxReplicas */
        MaxReplicas: {
            /** Value */
            value: number;
        };
        /** Message */
        Message: {
            /** Message */
            message: string;
        };
        /** MinuteView */
        MinuteView: {
            /** Length S */
            length_s: number;
            /** Requests */
            requests: number;
            /** Failed */
            failed: number;
            /** Busy S */
            busy_s: number;
            /** Ram Used */
            ram_used: number | null;
            /** Vram Used */
            vram_used: number | null;
        };
        /** ModelDetail */
        ModelDetail: {
            /** Name */
            name: string;
            /** Backend */
            backend: string;
            /** Model */
            model: string;
            /** Description */
            description: string;
            /** Revision */
            revision: string;
            /** Aliases */
            aliases: string[];
            /** Alias Of */
            alias_of: string;
            /** Known Usecases */
            known_usecases: string[];
            /** Context Size */
            context_size: number | null;
            /** Embeddings */
            embeddings: boolean;
            /** Disabled */
            disabled: boolean;
            /** Pinned */
            pinned: boolean;
            /**
             * Changed At
             * Format: date-time
             */
            changed_at: string;
            /** Changed By */
            changed_by: string;
            pending: components["schemas"]["PendingView"] | null;
            /** Config */
            config: string;
            /** Files */
            files: {
                [key: string]: string;
            }[];
            /** Unknown Fields */
            unknown_fields: string[];
            /** Warnings */
            warnings: string[];
        };
        /** ModelUse */
        ModelUse: {
            /** Model */
            model: string;
            /** Replicas */
            replicas: number;
        };
        /**
         * ModelView
         * @description As it was last written.
         */
        ModelView: {
            /** Name */
            name: string;
            /** Backend */
            backend: string;
            /** Model */
            model: string;
            /** Description */
            description: string;
            /** Revision */
            revision: string;
            /** Aliases */
            aliases: string[];
            /** Alias Of */
            alias_of: string;
            /** Known Usecases */
            known_usecases: string[];
            /** Context Size */
            context_size: number | null;
            /** Embeddings */
            embeddings: boolean;
            /** Disabled */
            disabled: boolean;
            /** Pinned */
            pinned: boolean;
            /**
             * Changed At
             * Format: date-time
             */
            changed_at: string;
            /** Changed By */
            changed_by: string;
            pending: components["schemas"]["PendingView"] | null;
        };
        /** NewKey */
        NewKey: {
            /** Name */
            name: string;
            /** @default user */
            scope: components["schemas"]["Scope"];
            /** Models */
            models?: string[] | null;
        };
        /** NodeBackendBody */
        NodeBackendBody: {
            /** Backend */
            backend: string;
        };
        /** NodeHistoryView */
        NodeHistoryView: {
            /** Minutes */
            minutes: components["schemas"]["MinuteView"][];
        };
        /** NodeInstallBody */
        NodeInstallBody: {
            /**
             * Backend
             * @default
             */
            backend: string;
            /**
             * Uri
             * @default
             */
            uri: string;
            /**
             * Backend Galleries
             * @default
             */
            backend_galleries: string;
            /**
             * Name
             * @default
             */
            name: string;
            /**
             * Alias
             * @default
             */
            alias: string;
            /**
             * Force
             * @default false
             */
            force: boolean;
        };
        /** NodeOffer */
        NodeOffer: {
            /** Node Id */
            node_id: string;
            /** Node Name */
            node_name: string;
            /** Node Status */
            node_status: string;
            /** Capability */
            capability: string;
        };
        /**
         * NodeProgressStatus
         * @enum {string}
         */
        NodeProgressStatus: "queued" | "downloading" | "running_on_worker" | "success" | "error" | "not_applicable" | "cancelled";
        /**
         * NodeState
         * @description What people see. LocalAI's statuses, and one more.
         * @enum {string}
         */
        NodeState: "pending" | "joining" | "healthy" | "unhealthy" | "offline" | "draining";
        /**
         * NodeStatus
         * @enum {string}
         */
        NodeStatus: "pending" | "healthy" | "unhealthy" | "offline" | "draining";
        /**
         * NodeView
         * @description Byte counts that nobody could read are null, never 0.
         */
        NodeView: {
            /** Id */
            id: string;
            /** Name */
            name: string;
            /** Node Type */
            node_type: string;
            /** Address */
            address: string;
            /** Http Address */
            http_address: string;
            /** @description In LocalAI's words, which know no joining. */
            status: components["schemas"]["NodeStatus"];
            state: components["schemas"]["NodeState"];
            /**
             * Reachable
             * @description It takes orders: also while a condition keeps new models away.
             */
            reachable: boolean;
            /**
             * Status Reason
             * @description Why it is so, for people; empty when there is nothing to say.
             */
            status_reason: string;
            /** Total Vram */
            total_vram: number | null;
            /** Available Vram */
            available_vram: number | null;
            /** Reserved Vram */
            reserved_vram: number;
            /** Total Ram */
            total_ram: number | null;
            /** Available Ram */
            available_ram: number | null;
            /** Total Disk */
            total_disk: number | null;
            /** Available Disk */
            available_disk: number | null;
            /** Gpu Vendor */
            gpu_vendor: string | null;
            /** Gpu Compute Capability */
            gpu_compute_capability: string | null;
            /** Capability */
            capability: string | null;
            /** Capability Reason */
            capability_reason: string | null;
            /**
             * Isolation
             * @description How far its backends are contained: full, partial or none; null where it does not tell.
             */
            isolation: string | null;
            /** Isolation Reason */
            isolation_reason: string | null;
            /** Max Replicas Per Model */
            max_replicas_per_model: number;
            /** Max Replicas Per Model Manually Set */
            max_replicas_per_model_manually_set: boolean;
            /** Vram Budget */
            vram_budget: string | null;
            /** Vram Budget Bytes */
            vram_budget_bytes: number | null;
            /** Vram Budget Manually Set */
            vram_budget_manually_set: boolean;
            /** Last Heartbeat */
            last_heartbeat: string | null;
            /** Last Seen Age S */
            last_seen_age_s: number | null;
            /**
             * Created At
             * Format: date-time
             */
            created_at: string;
            /**
             * Updated At
             * Format: date-time
             */
            updated_at: string;
            /** Model Count */
            model_count: number;
            /** In Flight Count */
            in_flight_count: number;
            /** Labels */
            labels: {
                [key: string]: string;
            };
            /** Worker Labels */
            worker_labels: {
                [key: string]: string;
            };
            /** Operator Labels */
            operator_labels: {
                [key: string]: string;
            };
            /** Approved */
            approved: boolean;
            /** Draining */
            draining: boolean;
            /**
             * Drain Wanted
             * @description By an administrator; otherwise its worker is stopping.
             */
            drain_wanted: boolean;
            /** Epoch */
            epoch: number;
            /** Version */
            version: string | null;
            /** Platform */
            platform: string | null;
            /** Cpu Model */
            cpu_model: string | null;
            /** Cpu Count */
            cpu_count: number | null;
            /** Gpus */
            gpus: components["schemas"]["GpuView"][];
            /**
             * Problems
             * @description What the worker could not find out about its machine.
             */
            problems: string[];
            /**
             * Conditions
             * @description What keeps it from taking new work.
             */
            conditions: components["schemas"]["ConditionView"][];
            /** @description A second machine that claims to be this one. */
            conflict: components["schemas"]["ConflictView"] | null;
            /**
             * Claims
             * @description Machines that wait for an administrator to say that they replace this one.
             */
            claims: components["schemas"]["ClaimView"][];
            /** @description Messages of this machine that lately could not be read or stored. */
            refused: components["schemas"]["RefusedView"] | null;
        };
        /**
         * OnDrift
         * @enum {string}
         */
        OnDrift: "heal" | "report" | "freeze";
        /** OnModel */
        OnModel: {
            /** Model Name */
            model_name: string;
        };
        /** OperationList */
        OperationList: {
            /** Operations */
            operations: components["schemas"]["OperationView"][];
        };
        /** OperationNodeView */
        OperationNodeView: {
            /** Node Id */
            node_id: string;
            /** Node Name */
            node_name: string;
            status: components["schemas"]["NodeProgressStatus"];
            /** Percentage */
            percentage: number;
            /** File Name */
            file_name: string;
            /** Current */
            current: string;
            /** Total */
            total: string;
            /** Phase */
            phase: string;
            /** Error */
            error: string;
            /** Bytes Done */
            bytes_done: number | null;
            /** Bytes Total */
            bytes_total: number | null;
            /** Rate Bytes Per S */
            rate_bytes_per_s: number | null;
            /** Eta S */
            eta_s: number | null;
            /** Attempts */
            attempts: number;
            /** Next Attempt At */
            next_attempt_at: string | null;
            /** Variant */
            variant: string;
            /** Digest */
            digest: string;
        };
        /**
         * OperationState
         * @enum {string}
         */
        OperationState: "running" | "completed" | "failed" | "cancelled";
        /** OperationView */
        OperationView: {
            /** Id */
            id: string;
            /** Fullname */
            fullName: string;
            /** Name */
            name: string;
            /** Jobid */
            jobID: string;
            /** Progress */
            progress: number;
            /** Tasktype */
            taskType: string;
            /** Isdeletion */
            isDeletion: boolean;
            /** Isbackend */
            isBackend: boolean;
            /** Isqueued */
            isQueued: boolean;
            /** Cancellable */
            cancellable: boolean;
            /** Message */
            message: string;
            /** Nodeid */
            nodeID: string | null;
            /** Phase */
            phase: string;
            /** Currentbytes */
            currentBytes: number | null;
            /** Totalbytes */
            totalBytes: number | null;
            /** Error */
            error: string;
            /** Nodes */
            nodes: components["schemas"]["OperationNodeView"][];
            verb: components["schemas"]["Verb"];
            state: components["schemas"]["OperationState"];
            /** Actor */
            actor: string;
            /** Cause */
            cause: string;
            /**
             * Created At
             * Format: date-time
             */
            created_at: string;
            /**
             * Changed At
             * Format: date-time
             */
            changed_at: string;
            /** Finished At */
            finished_at: string | null;
            /** Dismissed At */
            dismissed_at: string | null;
            /** Retrying */
            retrying: boolean;
            /** Next Attempt At */
            next_attempt_at: string | null;
        };
        /** OverviewView */
        OverviewView: {
            /** Sample S */
            sample_s: number;
            /** Samples */
            samples: components["schemas"]["SampleView"][];
        };
        /**
         * PendingView
         * @description The revision that was written last does not serve yet; the one before does.
         */
        PendingView: {
            /** Revision */
            revision: string;
            /** Serving */
            serving: string;
            /** Reason */
            reason: string;
            /** Failures */
            failures: number;
            /** Held */
            held: boolean;
        };
        /** PolicyBody */
        PolicyBody: {
            on_drift: components["schemas"]["OnDrift"];
        };
        /** PolicyView */
        PolicyView: {
            /** Id */
            id: string;
            /** Backend */
            backend: string;
            /** Selector */
            selector: {
                [key: string]: string;
            };
            /** Ensure */
            ensure: string;
            /** On Drift */
            on_drift: string;
            /** Uri */
            uri: string;
            /** Generation */
            generation: number;
            /** Operation Id */
            operation_id: string;
            /** Created By */
            created_by: string;
            /** Created At */
            created_at: string | null;
            /** Exceptions */
            exceptions: components["schemas"]["ExceptionView"][];
            /** Exception Count */
            exception_count: number;
            /** Rolled Back To */
            rolled_back_to: components["schemas"]["HeldVersionView"][];
        };
        /** RefusedImport */
        RefusedImport: {
            /** File */
            file: string;
            /** Reason */
            reason: string;
        };
        /** RefusedView */
        RefusedView: {
            /**
             * Count
             * @description Since it joined.
             */
            count: number;
            /**
             * Reason
             * @description Of the latest.
             */
            reason: string;
            /**
             * At
             * Format: date-time
             */
            at: string;
        };
        /** RejectedClaim */
        RejectedClaim: {
            /** Claim */
            claim: string;
        };
        /** Reset */
        Reset: {
            /**
             * Reset
             * @default true
             */
            reset: boolean;
        };
        /** Retry */
        Retry: {
            /** Node Id */
            node_id?: string | null;
        };
        /** Revert */
        Revert: {
            /**
             * Revision
             * @default
             */
            revision: string;
        };
        /** RevisionView */
        RevisionView: {
            /** Revision */
            revision: string;
            /** Config */
            config: string;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /** Actor */
            actor: string;
        };
        /** RollbackBody */
        RollbackBody: {
            /**
             * Nodes
             * @default []
             */
            nodes: string[];
            /**
             * Selector
             * @default {}
             */
            selector: {
                [key: string]: string;
            };
            /** To */
            to?: string | null;
        };
        /** SampleView */
        SampleView: {
            /** Ended Age S */
            ended_age_s: number;
            /** Requests */
            requests: number;
            /** Failed */
            failed: number;
            /** Tokens In */
            tokens_in: number;
            /** Tokens Out */
            tokens_out: number;
            /** First Byte P50 S */
            first_byte_p50_s: number | null;
            /** First Byte P95 S */
            first_byte_p95_s: number | null;
        };
        /**
         * SchedulingRequest
         * @description The last four keep what is stored when they are left out; the others are replaced.
         */
        SchedulingRequest: {
            /** Model Name */
            model_name: string;
            /** Node Selector */
            node_selector?: {
                [key: string]: string;
            } | null;
            /**
             * Min Replicas
             * @default 0
             */
            min_replicas: number;
            /**
             * Max Replicas
             * @default 0
             */
            max_replicas: number;
            /**
             * Spread All
             * @default false
             */
            spread_all: boolean;
            /** Route Policy */
            route_policy?: string | null;
            /** Balance Abs Threshold */
            balance_abs_threshold?: number | null;
            /** Balance Rel Threshold */
            balance_rel_threshold?: number | null;
            /** Min Prefix Match */
            min_prefix_match?: number | null;
        };
        /**
         * Scope
         * @enum {string}
         */
        Scope: "admin" | "user";
        /** SessionView */
        SessionView: {
            /** Name */
            name: string;
            scope: components["schemas"]["Scope"];
        };
        /** SignIn */
        SignIn: {
            /** Api Key */
            api_key: string;
        };
        /** Started */
        Started: {
            /** Jobid */
            jobID: string;
            /** Message */
            message: string;
            /** Uuid */
            uuid: string;
            /** Statusurl */
            statusUrl: string;
        };
        /** StatusView */
        StatusView: {
            /** Version */
            version: string;
            /** Frontend Id */
            frontend_id: string;
            /** Frontends */
            frontends: components["schemas"]["FrontendStatus"][];
            store: components["schemas"]["StoreStatus"];
            bus: components["schemas"]["BusStatus"];
            /** Nodes */
            nodes: {
                [key: string]: number;
            };
            /**
             * Claimed
             * @description Nodes whose name another machine claims; a person has to decide.
             */
            claimed: string[];
        };
        /** StoreStatus */
        StoreStatus: {
            /** Kind */
            kind: string;
            /** Location */
            location: string;
            /** Ok */
            ok: boolean;
            /** Problem */
            problem: string;
        };
        /** Targeted */
        Targeted: {
            /**
             * Nodes
             * @default []
             */
            nodes: string[];
            /**
             * Selector
             * @default {}
             */
            selector: {
                [key: string]: string;
            };
        };
        /** UpgradeBody */
        UpgradeBody: {
            /**
             * Nodes
             * @default []
             */
            nodes: string[];
            /**
             * Selector
             * @default {}
             */
            selector: {
                [key: string]: string;
            };
            /**
             * Spare Rolled Back
             * @default false
             */
            spare_rolled_back: boolean;
        };
        /**
         * UsageView
         * @description Summed over what was not asked for, which is absent.
         */
        UsageView: {
            /** Day */
            day?: string | null;
            /** Key Id */
            key_id?: string | null;
            /** Key Name */
            key_name?: string | null;
            /** Model */
            model?: string | null;
            /** Node Id */
            node_id?: string | null;
            /** Node Name */
            node_name?: string | null;
            /** Requests */
            requests: number;
            /** Tokens In */
            tokens_in: number;
            /** Tokens Out */
            tokens_out: number;
        };
        /** Uses */
        Uses: {
            /** Models */
            models: components["schemas"]["ModelUse"][];
            /** Consequence */
            consequence: string;
        };
        /** ValidationError */
        ValidationError: {
            /** Location */
            loc: (string | number)[];
            /** Message */
            msg: string;
            /** Error Type */
            type: string;
            /** Input */
            input?: unknown;
            /** Context */
            ctx?: Record<string, never>;
        };
        /**
         * VariantOffer
         * @description What a machine of this capability gets: a variant, or the reason why none fits.
         */
        VariantOffer: {
            /** Capability */
            capability: string;
            /** Variant */
            variant: string | null;
            /** Version */
            version: string;
            /** Size Bytes */
            size_bytes: number | null;
            /** Reason */
            reason: string;
            /** Nodes */
            nodes: number;
        };
        /**
         * Verb
         * @enum {string}
         */
        Verb: "install" | "upgrade" | "rollback" | "delete";
        /** VramBudget */
        VramBudget: {
            /** Value */
            value: string;
        };
        /** WhichClaim */
        WhichClaim: {
            /**
             * Claim
             * @description The claim (its id, or how it begins) of the machine that replaces the node; `current` is the machine that has the name.
             */
            claim?: string | null;
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    register_api_node_register_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    heartbeat_api_node__node_id__heartbeat_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    drain_api_node__node_id__drain_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    resume_api_node__node_id__resume_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    deregister_api_node__node_id__deregister_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    deregister_by_delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    models_api_node__node_id__models_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_scheduling_api_nodes_scheduling_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    save_scheduling_api_nodes_scheduling_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SchedulingRequest"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    show_scheduling_api_nodes_scheduling__model__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                model: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    delete_scheduling_api_nodes_scheduling__model__delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                model: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_loaded_api_nodes_models_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    list_replicas_api_replicas_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    summarise_replicas_api_replicas_summary_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    list_on_node_api_nodes__node_id__models_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    unload_on_node_api_nodes__node_id__models_unload_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["OnModel"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    delete_on_node_api_nodes__node_id__models_delete_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["OnModel"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    show_fit_api_models__name__fit_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    load_model_api_models__name__load_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["LoadRequest"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    unload_model_api_models__name__unload_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    show_load_status_api_models__name__load_status_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    why_model_api_why_models__name__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    why_node_api_why_nodes__node_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    why_request_api_why_requests__request_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                request_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_logs_api_nodes__node_id__backend_logs_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    follow_log_api_nodes__node_id__backend_logs__key__follow_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    read_log_api_nodes__node_id__backend_logs__key__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_nodes_api_nodes_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeView"][];
                };
            };
        };
    };
    show_node_api_nodes__node_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeView"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    remove_node_api_nodes__node_id__delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    approve_node_api_nodes__node_id__approve_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["WhichClaim"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Approved"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    reject_claim_api_nodes__node_id__reject_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RejectedClaim"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    drain_node_api_nodes__node_id__drain_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    resume_node_api_nodes__node_id__resume_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Message"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    show_labels_api_nodes__node_id__labels_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    replace_labels_api_nodes__node_id__labels_put: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    [key: string]: string;
                };
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    merge_labels_api_nodes__node_id__labels_patch: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    [key: string]: string;
                };
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    delete_label_api_nodes__node_id__labels__key__delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    set_max_replicas_api_nodes__node_id__max_replicas_per_model_put: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["MaxReplicas"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: number;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    reset_max_replicas_api_nodes__node_id__max_replicas_per_model_delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reset"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    set_vram_budget_api_nodes__node_id__vram_budget_put: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["VramBudget"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    reset_vram_budget_api_nodes__node_id__vram_budget_delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Reset"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_keys_api_keys_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyView"][];
                };
            };
        };
    };
    create_key_api_keys_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewKey"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CreatedKey"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    change_key_models_api_keys__id_or_name__models_put: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id_or_name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["KeyModels"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyView"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    revoke_key_api_keys__id_or_name__delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id_or_name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["KeyView"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    show_session_api_session_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionView"] | null;
                };
            };
        };
    };
    sign_in_api_session_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["SignIn"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["SessionView"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    sign_out_api_session_delete: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    list_audit_api_audit_get: {
        parameters: {
            query?: {
                limit?: number;
                before?: number | null;
                since?: string | null;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AuditEntry"][];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_usage_api_usage_get: {
        parameters: {
            query?: {
                days?: number;
                by?: components["schemas"]["By"][];
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["UsageView"][];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    metrics_metrics_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain": unknown;
                };
            };
        };
    };
    show_status_api_status_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["StatusView"];
                };
            };
        };
    };
    show_join_command_api_join_command_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["JoinCommand"];
                };
            };
        };
    };
    follow_events_api_events_get: {
        parameters: {
            query?: {
                kinds?: string;
            };
            header?: {
                "last-event-id"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    show_overview_api_overview_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OverviewView"];
                };
            };
        };
    };
    show_history_api_nodes__node_id__history_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["NodeHistoryView"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_operations_api_operations_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OperationList"];
                };
            };
        };
    };
    list_history_api_operations_history_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["History"];
                };
            };
        };
    };
    clear_history_api_operations_history_delete: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: boolean;
                    };
                };
            };
        };
    };
    show_operation_api_operations__operation_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                operation_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OperationView"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    retry_operation_api_operations__operation_id__retry_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                operation_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Retry"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OperationView"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    cancel_operation_api_operations__operation_id__cancel_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                operation_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    pause_operation_api_operations__operation_id__pause_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                operation_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    dismiss_operation_api_operations__operation_id__dismiss_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                operation_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    show_backend_job_api_backends_job__operation_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                operation_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    show_job_backends_jobs__operation_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                operation_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_jobs_backends_jobs_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    delete_api_backends_delete__element__post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                element: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Targeted"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Deleting"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    show_uses_api_backends_uses__element__post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                element: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Targeted"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Uses"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    install_external_api_backends_install_external_post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExternalBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Started"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    install_api_backends_install__element__post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                element: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["InstallBody"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Started"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    upgrade_api_backends_upgrade__element__post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                element: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["UpgradeBody"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Started"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    rollback_api_backends__element__rollback_post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                element: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["RollbackBody"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Started"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    apply_backends_apply_post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ApplyBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LocalAiStarted"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    apply_delete_backends_delete__element__post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                element: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LocalAiStarted"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    apply_upgrade_backends_upgrade__element__post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                element: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LocalAiStarted"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_upgrades_api_backends_upgrades_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    check_upgrades_api_backends_upgrades_check_post: {
        parameters: {
            query?: {
                wait?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_upgrades_backends_upgrades_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    check_upgrades_backends_upgrades_check_post: {
        parameters: {
            query?: {
                wait?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_unchecked_api_backends_upgrades_unchecked_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    upgrade_all_api_backends_upgrades_apply_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: {
                            [key: string]: string;
                        };
                    };
                };
            };
        };
    };
    list_node_backends_api_nodes__node_id__backends_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    install_api_nodes__node_id__backends_install_post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NodeInstallBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Started"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    upgrade_api_nodes__node_id__backends_upgrade_post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NodeBackendBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Started"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    delete_api_nodes__node_id__backends_delete_post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                node_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NodeBackendBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    delete_everywhere_api_backends_system_delete__element__post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                element: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_fleet_backends_api_fleet_backends_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": unknown;
                };
            };
        };
    };
    list_policies_api_policies_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PolicyView"][];
                };
            };
        };
    };
    end_policy_api_policies__policy_id__delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                policy_id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: string;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    change_policy_api_policies__policy_id__patch: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                policy_id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PolicyBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["PolicyView"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_intents_api_intents_get: {
        parameters: {
            query?: {
                node_id?: string | null;
                backend?: string | null;
                state?: string | null;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["IntentView"][];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_offers_api_backends_available_get: {
        parameters: {
            query?: {
                term?: string;
                tag?: string;
                name?: string;
                everything?: boolean;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AvailableBackends"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    refresh_api_galleries_refresh_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["GalleryView"][];
                };
            };
        };
    };
    page_api_backends_get: {
        parameters: {
            query?: {
                term?: string;
                tag?: string;
                page?: number;
                items?: number;
                sort?: string;
                order?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    };
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    installed_backends_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    }[];
                };
            };
        };
    };
    available_backends_available_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    }[];
                };
            };
        };
    };
    known_backends_known_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    }[];
                };
            };
        };
    };
    galleries_backends_galleries_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": {
                        [key: string]: unknown;
                    }[];
                };
            };
        };
    };
    list_available_api_models_available_get: {
        parameters: {
            query?: {
                term?: string;
                offset?: number;
                limit?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AvailablePage"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    install_model_api_models_install_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Installation"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelDetail"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    import_models_api_models_import_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Import"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Imported"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_models_api_models_get: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelView"][];
                };
            };
        };
    };
    add_model_api_models_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ConfigText"];
            };
        };
        responses: {
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelDetail"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    list_revisions_api_models__name__revisions_get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RevisionView"][];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    show_model_api_models__name__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelDetail"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    edit_model_api_models__name__put: {
        parameters: {
            query?: never;
            header?: {
                "if-match"?: string | null;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ConfigText"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelDetail"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    delete_model_api_models__name__delete: {
        parameters: {
            query?: never;
            header?: {
                "if-match"?: string | null;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelView"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
    revert_model_api_models__name__revert_post: {
        parameters: {
            query?: never;
            header?: {
                "if-match"?: string | null;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["Revert"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["ModelDetail"];
                };
            };
            /** @description Validation Error */
            422: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["HTTPValidationError"];
                };
            };
        };
    };
}
