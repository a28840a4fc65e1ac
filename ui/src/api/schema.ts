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
        /**
         * Register
         * @description Registers a worker, which needs a registration token or the node's own key.
         */
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
        /**
         * Heartbeat
         * @description Records a heartbeat and answers with the process leases of the node.
         */
        post: operations["heartbeat_api_node__node_id__heartbeat_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/node/{node_id}/downloads": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Downloads
         * @description Answers a worker that needs blobs: which node of its site fetches each of them.
         */
        post: operations["downloads_api_node__node_id__downloads_post"];
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
        /**
         * Drain
         * @description Marks the node as draining because its worker stops.
         */
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
        /**
         * Resume
         * @description Ends a drain that the worker started.
         */
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
        /**
         * Deregister
         * @description Marks the node as offline because its worker has stopped.
         */
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
        /**
         * Deregister
         * @description Marks the node as offline because its worker has stopped.
         */
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
         * @description Lists the replicas of a node with their open requests on all frontends; a stopping worker waits for these.
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
        /**
         * List Scheduling
         * @description Lists the scheduling of all models.
         */
        get: operations["list_scheduling_api_nodes_scheduling_get"];
        put?: never;
        /**
         * Save Scheduling
         * @description Sets how many replicas a model has and on which nodes. The answer shows how many fit now.
         */
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
        /**
         * Show Scheduling
         * @description Shows the scheduling of a model.
         */
        get: operations["show_scheduling_api_nodes_scheduling__model__get"];
        put?: never;
        post?: never;
        /**
         * Delete Scheduling
         * @description Deletes the scheduling of a model, which is then loaded on demand.
         */
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
         * @description Lists the replicas that serve now, on healthy nodes.
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
        /**
         * List Replicas
         * @description Lists all replicas.
         */
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
         * @description Shows, by model, its replicas and their nodes, the desired number, and what its loads wait for.
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
        /**
         * List On Node
         * @description Lists the replicas of a node.
         */
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
        /**
         * Unload On Node
         * @description Stops the replicas of a model on a node.
         */
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
         * @description Unloads a model on a node, and deletes its files there after the process has ended.
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
         * @description Shows whether one more replica fits on some node now, and if not, why.
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
        /**
         * Load Model
         * @description Loads a model. Answers 200 when it is loaded, 202 while the load runs.
         */
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
        /**
         * Unload Model
         * @description Stops all replicas of a model and cancels its loads. Rejected while its scheduling keeps it running.
         */
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
        /**
         * Show Load Status
         * @description Shows the progress of a model's load.
         */
        get: operations["show_load_status_api_models__name__load_status_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/routes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Routes
         * @description Lists all routes.
         */
        get: operations["list_routes_api_routes_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/routes/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        /**
         * Save Route
         * @description Adds a route, or replaces the one of this name.
         */
        put: operations["save_route_api_routes__name__put"];
        post?: never;
        /**
         * Delete Route
         * @description Deletes a route. Its models stay.
         */
        delete: operations["delete_route_api_routes__name__delete"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/endpoints": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List All Endpoints
         * @description Lists the attached endpoints of all models.
         */
        get: operations["list_all_endpoints_api_endpoints_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/{name}/endpoints": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Endpoints
         * @description Lists the attached endpoints of a model.
         */
        get: operations["list_endpoints_api_models__name__endpoints_get"];
        put?: never;
        /**
         * Attach Endpoint
         * @description Attaches a server that already runs to a model, which is added if there is none of this name. The server is
         *     probed first; one that does not answer is attached all the same, and gets requests once it does. The same URL
         *     again changes the endpoint's settings, as far as they are given (200).
         */
        post: operations["attach_endpoint_api_models__name__endpoints_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/{name}/endpoints/{endpoint}": {
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
         * Detach Endpoint
         * @description Detaches a server. It gets no new requests; those that are open are finished.
         */
        delete: operations["detach_endpoint_api_models__name__endpoints__endpoint__delete"];
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
         * Explain Model
         * @description Shows the placement decisions of a model, its replicas, and its loads that wait or failed.
         */
        get: operations["explain_model_api_why_models__name__get"];
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
        /**
         * Explain Node
         * @description Shows the replicas of a node, and the verdict on it in the latest placement decisions.
         */
        get: operations["explain_node_api_why_nodes__node_id__get"];
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
         * Explain Request
         * @description Shows how a request was routed, by the `x-request-id` of its answer; any frontend knows it. If it waited for
         *     a load, the placement decision is included.
         */
        get: operations["explain_request_api_why_requests__request_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/fleet/slow-builds": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Slow Builds
         * @description Lists CPU builds on nodes with an accelerator, with the reason and what corrects it.
         */
        get: operations["list_slow_builds_api_fleet_slow_builds_get"];
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
         * @description Lists the processes that have a log, as `model#replica`.
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
         * @description Follows a log as server-sent events: `{"type": "initial", "lines": [...]}`, then
         *     `{"type": "line", "line": {...}}` for each line. If the worker cannot be reached, the stream ends with
         *     `{"type": "error", "message": ...}`.
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
         * @description Shows the last lines of one process, or of all replicas of a model.
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
        /**
         * List Nodes
         * @description Lists all nodes.
         */
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
        /**
         * Show Node
         * @description Shows a node, by its id or name.
         */
        get: operations["show_node_api_nodes__node_id__get"];
        put?: never;
        post?: never;
        /**
         * Remove Node
         * @description Removes a node and revokes its bus credentials.
         */
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
         * @description Approves a pending node; with `claim`, another machine that replaces the one that has the name.
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
         * @description Rejects a machine that claims the name of this node. The node itself is not changed.
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
        /**
         * Drain Node
         * @description Drains a node: it gets no new work, also after restarts.
         */
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
        /**
         * Resume Node
         * @description Resumes a drained node.
         */
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
        /**
         * Show Labels
         * @description Shows all labels of a node: detected ones, those of its worker, and those of administrators.
         */
        get: operations["show_labels_api_nodes__node_id__labels_get"];
        /**
         * Replace Labels
         * @description Replaces the labels that administrators have set.
         */
        put: operations["replace_labels_api_nodes__node_id__labels_put"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /**
         * Merge Labels
         * @description Adds or changes labels, and keeps the others.
         */
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
        /**
         * Delete Label
         * @description Deletes a label that an administrator has set.
         */
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
        /**
         * Set Max Replicas
         * @description Sets how many replicas of one model the node may run.
         */
        put: operations["set_max_replicas_api_nodes__node_id__max_replicas_per_model_put"];
        post?: never;
        /**
         * Reset Max Replicas
         * @description Resets the limit to the one that the worker states.
         */
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
        /**
         * Set Vram Budget
         * @description Sets how much memory models may use, as a size or a percentage.
         */
        put: operations["set_vram_budget_api_nodes__node_id__vram_budget_put"];
        post?: never;
        /**
         * Reset Vram Budget
         * @description Resets the budget to the one that the worker states.
         */
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
        /**
         * List Keys
         * @description Lists all API keys, including revoked ones.
         */
        get: operations["list_keys_api_keys_get"];
        put?: never;
        /**
         * Create Key
         * @description Creates an API key. Only this answer contains its secret.
         */
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
         * @description Sets the models and routes that a key may use; `null` for all. Every frontend applies it within five
         *     seconds.
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
         * @description Revokes a key. This frontend rejects it from the answer on, the others within five seconds, and one that has
         *     lost the store and the message bus within a minute.
         */
        delete: operations["revoke_key_api_keys__id_or_name__delete"];
        options?: never;
        head?: never;
        /**
         * Edit Key
         * @description Changes limits, expiry date or models of a key. Every frontend applies it within five seconds.
         */
        patch: operations["edit_key_api_keys__id_or_name__patch"];
        trace?: never;
    };
    "/api/key-defaults": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show Key Defaults
         * @description Shows the limits of keys that have none of their own.
         */
        get: operations["show_key_defaults_api_key_defaults_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        /**
         * Edit Key Defaults
         * @description Changes the limits of keys that have none of their own; limits that are absent stay as they are. Every
         *     frontend applies it within five seconds.
         */
        patch: operations["edit_key_defaults_api_key_defaults_patch"];
        trace?: never;
    };
    "/api/keys/{id_or_name}/usage": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show Key Usage
         * @description Shows what a key has used, day by day and of its limits.
         */
        get: operations["show_key_usage_api_keys__id_or_name__usage_get"];
        put?: never;
        post?: never;
        delete?: never;
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
         * @description Shows the session; null when the browser is not signed in. An unknown key is rejected.
         */
        get: operations["show_session_api_session_get"];
        put?: never;
        /**
         * Sign In
         * @description Exchanges an admin key for a session cookie.
         */
        post: operations["sign_in_api_session_post"];
        /**
         * Sign Out
         * @description Ends the browser session.
         */
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
         * @description Lists audit entries, newest first. `before` is the id of the last entry of the previous page; `since` is an
         *     age (`2h`) or a time.
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
         * @description Shows answered requests and their tokens of the last `days` days, grouped by `by`, which may be repeated.
         *     Counts are a few seconds late.
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
         * @description Requests, durations, tokens, queues and open requests by model and node, and the states of the nodes, in
         *     Prometheus's text format.
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
        /**
         * Show Status
         * @description Shows the frontends, the store, the message bus and the number of nodes in each state.
         */
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
        /**
         * Show Join Command
         * @description Shows the command that adds a machine to the cluster.
         */
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
         * @description Sends changes as server-sent events; resumes from the header Last-Event-ID. `kinds`: only these kinds,
         *     separated by commas.
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
         * @description Shows the requests that all frontends answered.
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
         * @description Shows the requests that a node answered, for all frontends, and the memory it used.
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
         * @description Lists running operations, and failed ones that were not dismissed.
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
         * @description Lists the last fifty finished operations, newest first.
         */
        get: operations["list_history_api_operations_history_get"];
        put?: never;
        post?: never;
        /**
         * Clear History
         * @description Deletes the finished operations from the history.
         */
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
        /**
         * Show Operation
         * @description Shows an operation with its progress on each node.
         */
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
         * @description Retries the failed nodes, or one of them, now and with all attempts.
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
         * @description Cancels an operation on all nodes. Nodes that have started stop. Completed nodes go back to what was desired
         *     before; only a first install stays, and what a completed rollout has changed. Partial downloads are kept for at
         *     least a day, and a retry continues from them.
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
         * @description The same as cancel; a retry within a day continues the downloads.
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
        /**
         * Dismiss Operation
         * @description Removes a failed operation from the list.
         */
        post: operations["dismiss_operation_api_operations__operation_id__dismiss_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/rollouts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Rollouts
         * @description Lists the rollouts that run, and the last fifty that ended; newest first. Edits of models, which are proven
         *     on one replica before they replace the others, are listed beside them.
         */
        get: operations["list_rollouts_api_rollouts_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/rollouts/{rollout_id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show Rollout
         * @description Shows a rollout: its waves, nodes, gates and what happened. The id is that of its operation, or the
         *     beginning of it.
         */
        get: operations["show_rollout_api_rollouts__rollout_id__get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/rollouts/{rollout_id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pause Rollout
         * @description Lets no further wave begin. Nodes that have begun go on, and a failed gate still rolls back.
         */
        post: operations["pause_rollout_api_rollouts__rollout_id__pause_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/rollouts/{rollout_id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Resume Rollout
         * @description Continues a paused rollout.
         */
        post: operations["resume_rollout_api_rollouts__rollout_id__resume_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/rollouts/{rollout_id}/promote": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Promote Rollout
         * @description Begins the next wave now: after the canaries, or without watching the current wave any longer.
         */
        post: operations["promote_rollout_api_rollouts__rollout_id__promote_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/rollouts/{rollout_id}/abort": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Abort Rollout
         * @description Ends a rollout that has not ended. Nodes that have the new version go back to the previous one.
         */
        post: operations["abort_rollout_api_rollouts__rollout_id__abort_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/rollouts/{rollout_id}/allow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Allow Version
         * @description Offers the version of a failed rollout again.
         */
        post: operations["allow_version_api_rollouts__rollout_id__allow_post"];
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
         * @description Shows a job in the shape of LocalAI's UI, which takes an unknown job for one that is queued.
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
        /**
         * Show Job
         * @description Shows the status of a job.
         */
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
        /**
         * List Jobs
         * @description Lists the status of all open jobs by id.
         */
        get: operations["list_jobs_backends_jobs_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/delete/{reference}": {
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
         * @description Deletes a backend. The delete is declarative: no load installs the backend again. The answer lists the models
         *     that stop.
         */
        post: operations["delete_api_backends_delete__reference__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/{reference}/dependents": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show Dependents
         * @description Lists the models that use a backend, and how many of their replicas its deletion would stop. `node` (id or
         *     name) and `selector` (`key=value`) limit it to some nodes and may be repeated.
         */
        get: operations["show_dependents_api_backends__reference__dependents_get"];
        put?: never;
        post?: never;
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
         * @description Installs a backend from a location outside the galleries. With `dry_run`, only the plan is answered.
         */
        post: operations["install_external_api_backends_install_external_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/install/{reference}": {
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
         * @description Installs a backend by its reference, `name` or `gallery@name`, on every node that a build of it supports,
         *     and on such nodes that join later. With `@version` after it, that version is installed and pinned.
         */
        post: operations["install_api_backends_install__reference__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/upgrade/{reference}": {
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
         * @description Upgrades a backend to the version the galleries offer now, on the nodes that have it.
         */
        post: operations["upgrade_api_backends_upgrade__reference__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/{reference}/rollback": {
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
         * @description Rolls a backend back to its previous version, and pins that. It is still on the nodes' disks, so nothing is
         *     downloaded.
         */
        post: operations["rollback_api_backends__reference__rollback_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/{reference}/pin": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pin
         * @description Pins a backend to a version: nodes with another one change to it, and nodes that join later get it.
         */
        post: operations["pin_api_backends__reference__pin_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/{reference}/follow": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Follow
         * @description Ends the pins of a backend: installs and upgrades get the newest version again. This changes nothing on the
         *     nodes.
         */
        post: operations["follow_api_backends__reference__follow_post"];
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
        /**
         * Apply
         * @description Installs a backend. A build for certain hardware needs target nodes.
         */
        post: operations["apply_backends_apply_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/delete/{reference}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Apply Delete
         * @description Deletes a backend on every node.
         */
        post: operations["apply_delete_backends_delete__reference__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/backends/upgrade/{reference}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Apply Upgrade
         * @description Upgrades a backend on every node that has it.
         */
        post: operations["apply_upgrade_backends_upgrade__reference__post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/backends/system/delete/{reference}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Delete Everywhere
         * @description Deletes a backend on every node and waits for the end.
         */
        post: operations["delete_everywhere_api_backends_system_delete__reference__post"];
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
         * @description Lists, by backend, the version nodes have and the version the galleries offer.
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
         * @description Refreshes galleries and registries in the background. With `wait` it answers when they are refreshed, or
         *     after 15 seconds.
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
         * @description Lists, by backend, the version nodes have and the version the galleries offer.
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
         * @description Refreshes galleries and registries in the background. With `wait` it answers when they are refreshed, or
         *     after 15 seconds.
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
         * @description Lists, by backend, the nodes for which it is unknown whether a newer version exists, and why.
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
         * @description Upgrades every backend that has a newer version, except on nodes where its version is pinned, and versions
         *     that failed in a rollout or are being rolled out.
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
         * @description Lists a node's backends as the node last reported them; empty for a node that runs no backends.
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
        /**
         * Install
         * @description Installs a backend on one node, from a gallery or a location.
         */
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
        /**
         * Upgrade
         * @description Upgrades a backend on one node.
         */
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
         * @description Deletes a backend on a node and waits for the end. Answers 202 when the node is offline: the delete is then
         *     carried out later.
         */
        post: operations["delete_api_nodes__node_id__backends_delete_post"];
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
         * @description Lists every backend with the nodes that have it or are to get it, and their versions.
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
    "/api/why/backends/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Explain
         * @description Shows, for each node that has the backend or is to get it, or for one node: why this build and this version,
         *     whether an upgrade is held back, what an open rollout waits for, why drift is not corrected, and whether an
         *     accelerator is not used. `name` is a backend, a build or an alias.
         */
        get: operations["explain_api_why_backends__name__get"];
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
         * @description Lists the policies: which backends must be installed, or must not, on every node that a selector matches,
         *     also on nodes that join later; and the nodes that are exempt because something else was requested for them.
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
         * @description Removes a policy. This installs and deletes nothing.
         */
        delete: operations["end_policy_api_policies__policy_id__delete"];
        options?: never;
        head?: never;
        /**
         * Change Policy
         * @description Changes what the policy does about drift, or how versions change on its nodes.
         */
        patch: operations["change_policy_api_policies__policy_id__patch"];
        trace?: never;
    };
    "/api/pins": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Pins
         * @description Lists the version pins in force, newest first: to which version, on which nodes, since when, by whom and
         *     why.
         */
        get: operations["list_pins_api_pins_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
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
         * @description Lists intents, open and finished, newest first.
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
         * @description Lists meta backends and backends that belong to none; with `everything` also the variants of meta backends
         *     and development builds.
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
         * @description Refreshes every gallery now.
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
        /**
         * List Backends Page
         * @description Lists the backends of the galleries in pages.
         */
        get: operations["list_backends_page_api_backends_get"];
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
        /**
         * List Installed Backends
         * @description Lists the backends that are installed on some node.
         */
        get: operations["list_installed_backends_backends_get"];
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
        /**
         * List Available Backends
         * @description Lists the backends that some node can run.
         */
        get: operations["list_available_backends_backends_available_get"];
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
        /**
         * List Known Backends
         * @description Lists the backends that a model may name.
         */
        get: operations["list_known_backends_backends_known_get"];
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
        /**
         * List Backend Galleries
         * @description Lists the backend galleries.
         */
        get: operations["list_backend_galleries_backends_galleries_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/models/available": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * List Available Models
         * @description Lists the models of the galleries.
         */
        get: operations["list_available_models_models_available_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/pull": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Pull Model
         * @description Adds a model from a gallery and loads it. Answers with a line of JSON for each step, or with `stream: false`
         *     with one object at the end.
         */
        post: operations["pull_model_api_pull_post"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/delete": {
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
         * Delete Pulled Model
         * @description Deletes a model and stops its replicas. The answer has no body.
         */
        delete: operations["delete_pulled_model_api_delete_delete"];
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
         * @description Lists the models that the galleries offer.
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
         * @description Adds a model from a gallery. Nodes download its files when they load it first.
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
         * @description Adds every model configuration in the frontend's models directory.
         */
        post: operations["import_models_api_models_import_post"];
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
         * @description Lists the revisions of a model, newest first. A deleted model still has them.
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
    "/api/models/{name}/revisions/{revision}/changes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Show Changes
         * @description Shows which fields a revision changed, compared with the one before it or with another one.
         */
        get: operations["show_changes_api_models__name__revisions__revision__changes_get"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/api/models/{name}/rollback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Roll Back
         * @description Goes back to an earlier configuration. A pending one is discarded, and replicas that serve keep running.
         *     Otherwise it is a new revision with the earlier content, which is loaded and tried like an edit.
         */
        post: operations["roll_back_api_models__name__rollback_post"];
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
        /**
         * List Models
         * @description Lists all models.
         */
        get: operations["list_models_api_models_get"];
        put?: never;
        /**
         * Add Model
         * @description Adds a model from its configuration.
         */
        post: operations["add_model_api_models_post"];
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
        /**
         * Show Model
         * @description Shows a model with its configuration; its revision is the ETag.
         */
        get: operations["show_model_api_models__name__get"];
        /**
         * Edit Model
         * @description Checks and saves a configuration. While replicas serve that must be loaded again, it is `pending` until one
         *     with it is ready; those with the previous configuration serve until then.
         */
        put: operations["edit_model_api_models__name__put"];
        post?: never;
        /**
         * Delete Model
         * @description Deletes a model and stops its replicas.
         */
        delete: operations["delete_model_api_models__name__delete"];
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
            /**
             * Version
             * @default
             */
            version: string;
            rollout?: components["schemas"]["RolloutBody"] | null;
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
            status: components["schemas"]["NodeStatus"];
            /** Message */
            message: string;
        };
        /** AttachAnswer */
        AttachAnswer: {
            /** Id */
            id: string;
            /** Model */
            model: string;
            /** Url */
            url: string;
            /** Upstream Model */
            upstream_model: string;
            protocol: components["schemas"]["UpstreamProtocol"];
            /** Endpoints */
            endpoints: string[];
            /** Continuation */
            continuation: string;
            /** Has Key */
            has_key: boolean;
            /** Has Ca */
            has_ca: boolean;
            /** Pin */
            pin: string;
            /** Limit */
            limit: number;
            /** Weight */
            weight: number;
            state: components["schemas"]["EndpointState"];
            health: components["schemas"]["EndpointHealth"];
            /** Reason */
            reason: string;
            /** In Flight */
            in_flight: number;
            /** Last Used */
            last_used: string | null;
            /**
             * Created At
             * Format: date-time
             */
            created_at: string;
            /** Created By */
            created_by: string;
            /** Is New */
            is_new: boolean;
            /** Warnings */
            warnings: string[];
        };
        /**
         * AttachRequest
         * @description An endpoint that is attached already keeps what is left out; an empty text or list clears it.
         */
        AttachRequest: {
            /** Url */
            url: string;
            /** Upstream Model */
            upstream_model?: string | null;
            /** Api Key */
            api_key?: string | null;
            protocol?: components["schemas"]["UpstreamProtocol"] | null;
            /** Endpoints */
            endpoints?: string[] | null;
            /** Continuation */
            continuation?: ("" | "assistant-prefill" | "continue-final-message") | null;
            /** Ca Pem */
            ca_pem?: string | null;
            /** Pin */
            pin?: string | null;
            /** Limit */
            limit?: number | null;
            /** Weight */
            weight?: number | null;
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
        /** BackendExplanation */
        BackendExplanation: {
            /** Backend */
            backend: string;
            /** Nodes */
            nodes: components["schemas"]["ExplainedBackend"][];
            /** Slow Builds */
            slow_builds: components["schemas"]["SlowBuild"][];
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
        /**
         * BackendOnNode
         * @description One backend on one node.
         */
        BackendOnNode: {
            /** Node Id */
            node_id: string;
            /** Node Name */
            node_name: string;
            node_status: components["schemas"]["NodeStatus"];
            /** Version */
            version: string;
            /** Digest */
            digest: string;
            /** Variant */
            variant: string;
            /** Current */
            current: boolean;
            /** Drift */
            drift: components["schemas"]["DriftView"][];
            /** Versions */
            versions: string[];
            /** Pending */
            pending: string;
            /** Pinned */
            pinned: string;
            /** Held Back */
            held_back: string;
            /** Unchecked */
            unchecked: string;
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
        /** CandidateView */
        CandidateView: {
            /** Node Id */
            node_id: string;
            /** Node */
            node: string;
            /** Verdict */
            verdict: string;
            /** Reason */
            reason: string;
            /** Score */
            score: {
                [key: string]: number;
            } | null;
        };
        /**
         * ChangeResult
         * @description LocalAI's answer.
         */
        ChangeResult: {
            /** Success */
            success: boolean;
            /** Message */
            message: string;
        };
        /**
         * ClaimView
         * @description Another machine that registered under the name of this node.
         */
        ClaimView: {
            /** Id */
            id: string;
            /**
             * Address
             * @description The address it registered from.
             */
            address: string;
            /**
             * Http Address
             * @description The HTTP address it stated.
             */
            http_address: string;
            /**
             * Localai
             * @description Whether it is a LocalAI worker, which has no node key.
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
             * @description `disk_pressure`, `data_directory`, `clock_skew` or `ports_exhausted`.
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
            /**
             * Comment
             * @default
             */
            comment: string;
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
            limits: components["schemas"]["LimitsView"];
            in_force: components["schemas"]["LimitsInForceView"];
            /** Expires At */
            expires_at: string | null;
            /** Key */
            key: string;
        };
        /** DayUsage */
        DayUsage: {
            /**
             * Day
             * Format: date
             */
            day: string;
            /** Requests */
            requests: number;
            /** Tokens */
            tokens: number;
        };
        /** DecisionView */
        DecisionView: {
            /** Id */
            id: number;
            /** Model */
            model: string;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /** Cause */
            cause: string;
            /** Outcome */
            outcome: {
                [key: string]: unknown;
            };
            /** Nodes */
            nodes: number;
            /** Candidates */
            candidates: components["schemas"]["CandidateView"][];
            /** Others */
            others: components["schemas"]["OtherCandidates"][];
        };
        /**
         * DeleteResult
         * @description Answers leave out fields that are null.
         */
        DeleteResult: {
            /** Message */
            message: string;
            /** Success */
            success?: boolean | null;
            /** Jobid */
            jobID?: string | null;
            /** Models */
            models?: components["schemas"]["DependentModel"][] | null;
            /** Consequence */
            consequence?: string | null;
        };
        /** DeleteStarted */
        DeleteStarted: {
            /** Models */
            models: components["schemas"]["DependentModel"][];
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
        /** DependentModel */
        DependentModel: {
            /** Model */
            model: string;
            /** Replicas */
            replicas: number;
        };
        /** Dependents */
        Dependents: {
            /** Models */
            models: components["schemas"]["DependentModel"][];
            /** Consequence */
            consequence: string;
        };
        /** DesiredReplicas */
        DesiredReplicas: {
            /** Min Replicas */
            min_replicas: number;
            /** Max Replicas */
            max_replicas: number;
            /** Spread All */
            spread_all: boolean;
            /** Nodes */
            nodes?: number | null;
        };
        /**
         * DriftCause
         * @enum {string}
         */
        DriftCause: "missing" | "extra" | "wrong_version" | "wrong_variant" | "old_process";
        /** DriftView */
        DriftView: {
            cause: components["schemas"]["DriftCause"];
            /** Detail */
            detail: string;
            /** Process Key */
            process_key: string;
        };
        /**
         * EndpointHealth
         * @enum {string}
         */
        EndpointHealth: "healthy" | "unhealthy";
        /** EndpointObject */
        EndpointObject: {
            /** Id */
            id: string;
            /** Model */
            model: string;
            /** Url */
            url: string;
            /** Upstream Model */
            upstream_model: string;
            protocol: components["schemas"]["UpstreamProtocol"];
            /** Endpoints */
            endpoints: string[];
            /** Continuation */
            continuation: string;
            /** Has Key */
            has_key: boolean;
            /** Has Ca */
            has_ca: boolean;
            /** Pin */
            pin: string;
            /** Limit */
            limit: number;
            /** Weight */
            weight: number;
            state: components["schemas"]["EndpointState"];
            health: components["schemas"]["EndpointHealth"];
            /** Reason */
            reason: string;
            /** In Flight */
            in_flight: number;
            /** Last Used */
            last_used: string | null;
            /**
             * Created At
             * Format: date-time
             */
            created_at: string;
            /** Created By */
            created_by: string;
        };
        /**
         * EndpointState
         * @enum {string}
         */
        EndpointState: "attached" | "draining";
        /**
         * Ensure
         * @enum {string}
         */
        Ensure: "present" | "absent";
        /**
         * ExceptionCause
         * @enum {string}
         */
        ExceptionCause: "deleted" | "installed" | "cancelled" | "no_build";
        /**
         * ExceptionView
         * @description A node that the policy selects and that is exempt from it.
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
        /** ExplainedBackend */
        ExplainedBackend: {
            /** Node Id */
            node_id: string;
            /** Node Name */
            node_name: string;
            /** Build */
            build: string;
            /** Build Reason */
            build_reason: string;
            /** Version */
            version: string;
            /** Digest */
            digest: string;
            /** Desired */
            desired: string;
            /** Version Reason */
            version_reason: string;
            /** Upgrade */
            upgrade: string;
            /** Rollout */
            rollout: string;
            /** Last Change */
            last_change: string;
            /** Drift */
            drift: components["schemas"]["ExplainedDrift"][];
        };
        /** ExplainedDrift */
        ExplainedDrift: {
            cause: components["schemas"]["DriftCause"];
            /** Detail */
            detail: string;
            /** Not Corrected */
            not_corrected: string;
        };
        /** ExternalInstallBody */
        ExternalInstallBody: {
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
            /**
             * Version
             * @default
             */
            version: string;
            rollout?: components["schemas"]["RolloutBody"] | null;
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
        /** FailureTrace */
        FailureTrace: {
            /** Replica */
            replica: string;
            /** Node */
            node: string;
            /** Error */
            error: string;
        };
        /** FieldChangeView */
        FieldChangeView: {
            /** Field */
            field: string;
            /** Before */
            before: string | null;
            /** After */
            after: string | null;
        };
        /** FitView */
        FitView: {
            /** Model */
            model: string;
            /** Fits */
            fits: boolean;
            /** Reason */
            reason: string;
        };
        /** FleetBackend */
        FleetBackend: {
            /** Name */
            name: string;
            /** Nodes */
            nodes: components["schemas"]["BackendOnNode"][];
        };
        /** FollowBody */
        FollowBody: {
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
             * Reason
             * @default
             */
            reason: string;
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
        /**
         * GateOutcome
         * @enum {string}
         */
        GateOutcome: "passed" | "failed" | "unjudged";
        /** GateVerdict */
        GateVerdict: {
            /** Gate */
            gate: string;
            outcome: components["schemas"]["GateOutcome"];
            /** Detail */
            detail: string;
            /**
             * Model
             * @default
             */
            model: string;
            /**
             * Node Class
             * @default
             */
            node_class: string;
            /** New */
            new?: number | null;
            /** Old */
            old?: number | null;
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
        /** History */
        History: {
            /** Operations */
            operations: components["schemas"]["HistoryEntry"][];
        };
        /** HistoryCleared */
        HistoryCleared: {
            /** Success */
            success: boolean;
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
            outcome: components["schemas"]["OperationState"];
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
            verb: components["schemas"]["Verb"];
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
            refused: components["schemas"]["RejectedImport"][];
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
            /**
             * Version
             * @default
             */
            version: string;
            rollout?: components["schemas"]["RolloutBody"] | null;
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
        /**
         * IntentState
         * @enum {string}
         */
        IntentState: "pending" | "running" | "unconfirmed" | "succeeded" | "superseded" | "cancelled" | "dead_lettered";
        /** IntentView */
        IntentView: {
            /** Id */
            id: string;
            /** Node Id */
            node_id: string;
            /** Backend */
            backend: string;
            verb: components["schemas"]["Verb"];
            state: components["schemas"]["IntentState"];
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
        /**
         * JobStatus
         * @description The status object of LocalAI's progress broadcasts.
         */
        JobStatus: {
            /** Deletion */
            deletion: boolean;
            /** File Name */
            file_name: string;
            /** Message */
            message: string;
            /** File Size */
            file_size: string;
            /** Downloaded Size */
            downloaded_size: string;
            /** Gallery Element Name */
            gallery_element_name: string;
            /** Error */
            error: string | null;
            /** Processed */
            processed: boolean;
            /** Progress */
            progress: number;
            /** Phase */
            phase: string;
            /** Current Bytes */
            current_bytes: number | null;
            /** Total Bytes */
            total_bytes: number | null;
            /** Cancelled */
            cancelled: boolean;
            /** Cancellable */
            cancellable: boolean;
            /** Nodes */
            nodes: components["schemas"]["OperationNodeView"][];
        };
        /** JoinCommand */
        JoinCommand: {
            /** Url */
            url: string;
            /** Token */
            token: string;
            /** Command */
            command: string;
            /**
             * Localai Command
             * @description The command that adds the machine with a LocalAI worker.
             */
            localai_command: string;
        };
        /**
         * KeyChange
         * @description Fields that are absent stay as they are.
         */
        KeyChange: {
            /** Models */
            models?: string[] | null;
            /** @default {} */
            limits: components["schemas"]["LimitsView"];
            /** Expires At */
            expires_at?: string | null;
        };
        /** KeyModels */
        KeyModels: {
            /** Models */
            models: string[] | null;
        };
        /** KeyUsageView */
        KeyUsageView: {
            /** Id */
            id: string;
            /** Name */
            name: string;
            limits: components["schemas"]["LimitsInForceView"];
            used: components["schemas"]["UsedNow"];
            /**
             * Day Ends At
             * Format: date-time
             */
            day_ends_at: string;
            /**
             * Month Ends At
             * Format: date-time
             */
            month_ends_at: string;
            /** Days */
            days: components["schemas"]["DayUsage"][];
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
            limits: components["schemas"]["LimitsView"];
            in_force: components["schemas"]["LimitsInForceView"];
            /** Expires At */
            expires_at: string | null;
        };
        /**
         * LimitsInForceView
         * @description 0: no limit.
         */
        LimitsInForceView: {
            /** Requests Per Minute */
            requests_per_minute: number;
            /** Tokens Per Minute */
            tokens_per_minute: number;
            /** Concurrent Requests */
            concurrent_requests: number;
            /** Tokens Per Day */
            tokens_per_day: number;
            /** Tokens Per Month */
            tokens_per_month: number;
            priority: components["schemas"]["Priority"];
        };
        /**
         * LimitsView
         * @description Null: the default applies. 0: no limit, whatever the default.
         */
        LimitsView: {
            /** Requests Per Minute */
            requests_per_minute?: number | null;
            /** Tokens Per Minute */
            tokens_per_minute?: number | null;
            /** Concurrent Requests */
            concurrent_requests?: number | null;
            /** Tokens Per Day */
            tokens_per_day?: number | null;
            /** Tokens Per Month */
            tokens_per_month?: number | null;
            priority?: components["schemas"]["Priority"] | null;
        };
        /** LoadAnswer */
        LoadAnswer: {
            /** Message */
            message: string;
            loading?: components["schemas"]["LoadView"] | null;
        };
        /**
         * LoadBackoffView
         * @description A node on which loads of the model failed.
         */
        LoadBackoffView: {
            /** Node */
            node: string;
            /** Failures */
            failures: number;
            /** Cooling Down */
            cooling_down: boolean;
            /**
             * Until
             * Format: date-time
             */
            until: string;
            /** Error */
            error: string;
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
        /**
         * LoadState
         * @description LocalAI's words. A successful load removes its job.
         * @enum {string}
         */
        LoadState: "pending" | "installing" | "staging" | "loading" | "failed";
        /**
         * LoadView
         * @description LocalAI's loading object; the last three fields and `reason` are Corral's own.
         */
        LoadView: {
            /** Model */
            model: string;
            state: components["schemas"]["LoadState"];
            /** Progress */
            progress: number;
            /** Bytes Sent */
            bytes_sent: number;
            /** Total Bytes */
            total_bytes: number;
            /** File Index */
            file_index: number;
            /** Total Files */
            total_files: number;
            /** Node */
            node?: string | null;
            /** Eta Seconds */
            eta_seconds?: number | null;
            /** Reason */
            reason?: string | null;
            /** Error */
            error?: string | null;
            /** Next Attempt At */
            next_attempt_at?: string | null;
            /** Cause */
            cause?: string | null;
            /** Attempts */
            attempts?: number | null;
        };
        /**
         * LocalAiReplicaState
         * @enum {string}
         */
        LocalAiReplicaState: "staging" | "loading" | "loaded" | "unloading";
        /** LocalAiStarted */
        LocalAiStarted: {
            /** Id */
            id: string;
            /** Status Url */
            status_url: string;
        };
        /**
         * LogLineView
         * @description A line of a log, as the worker sends it.
         */
        LogLineView: {
            /** Timestamp */
            timestamp: string;
            /**
             * Stream
             * @enum {string}
             */
            stream: "stdout" | "stderr";
            /** Text */
            text: string;
        };
        /** MaxReplicas */
        MaxReplicas: {
            /** Value */
            value: number;
        };
        /** MaxReplicasSet */
        MaxReplicasSet: {
            /** Max Replicas Per Model */
            max_replicas_per_model: number;
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
            /** Number */
            number: number;
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
            files: components["schemas"]["ModelFileView"][];
            /** Unknown Fields */
            unknown_fields: string[];
            /** Restorable */
            restorable: number | null;
            /** Warnings */
            warnings: string[];
        };
        /** ModelExplanation */
        ModelExplanation: {
            /** Model */
            model: string;
            /** Revision */
            revision: string;
            /** Number */
            number: number;
            /** Replicas */
            replicas: components["schemas"]["ReplicaObject"][];
            /** Loads */
            loads: components["schemas"]["LoadView"][];
            /** Footprint Bytes */
            footprint_bytes: {
                [key: string]: number;
            };
            /** Backoffs */
            backoffs: components["schemas"]["LoadBackoffView"][];
            /** Decisions */
            decisions: components["schemas"]["DecisionView"][];
            pending?: components["schemas"]["PendingView"] | null;
            /** Restorable */
            restorable?: number | null;
            /** Unsatisfiable */
            unsatisfiable?: string | null;
            /** Slow Builds */
            slow_builds: components["schemas"]["SlowBuild"][];
        };
        /** ModelFileView */
        ModelFileView: {
            /** Filename */
            filename: string;
            /** Uri */
            uri: string;
            /** Sha256 */
            sha256: string;
        };
        /**
         * ModelObject
         * @description A model as its newest revision configures it.
         */
        ModelObject: {
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
            /** Number */
            number: number;
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
        /** ModelOnNode */
        ModelOnNode: {
            /** Model Name */
            model_name: string;
        };
        /**
         * ModelRolloutState
         * @enum {string}
         */
        ModelRolloutState: "proving" | "replacing" | "completed" | "failed" | "discarded";
        /**
         * ModelRolloutView
         * @description An edit of a model: its revision is proven on one replica before it replaces the one that serves.
         */
        ModelRolloutView: {
            /** Model */
            model: string;
            /** Number */
            number: number;
            /** Previous */
            previous: number;
            state: components["schemas"]["ModelRolloutState"];
            /** Summary */
            summary: string;
            /** Comment */
            comment: string;
            /** Actor */
            actor: string;
            /** Replicas */
            replicas: number;
            /** Other Replicas */
            other_replicas: number;
            /** Created At */
            created_at: string | null;
        };
        /** ModelSummary */
        ModelSummary: {
            /** Ready */
            ready: number;
            /** Replicas */
            replicas: components["schemas"]["ReplicaSummary"][];
            /** Loads */
            loads: components["schemas"]["LoadView"][];
            desired?: components["schemas"]["DesiredReplicas"] | null;
        };
        /** NewKey */
        NewKey: {
            /** Name */
            name: string;
            /** @default user */
            scope: components["schemas"]["Scope"];
            /** Models */
            models?: string[] | null;
            /** @default {} */
            limits: components["schemas"]["LimitsView"];
            /** Expires At */
            expires_at?: string | null;
        };
        /**
         * NodeBackend
         * @description An item of LocalAI's backend.list, with Corral's own fields. Answers leave out fields that have their default.
         */
        NodeBackend: {
            /** Name */
            name: string;
            /** Is System */
            is_system: boolean;
            /** Is Meta */
            is_meta: boolean;
            /** Installed At */
            installed_at?: string | null;
            /** Gallery Url */
            gallery_url?: string | null;
            /** Version */
            version?: string | null;
            /** Uri */
            uri?: string | null;
            /** Digest */
            digest?: string | null;
            /** Alias */
            alias?: string | null;
            /** Generation */
            generation?: number | null;
            /** Concrete */
            concrete?: string | null;
            /** Versions */
            versions?: string[] | null;
            /** Problem */
            problem?: string | null;
        };
        /** NodeBackendBody */
        NodeBackendBody: {
            /** Backend */
            backend: string;
        };
        /** NodeDecision */
        NodeDecision: {
            /** Verdict */
            verdict: string;
            /** Reason */
            reason: string;
            /** Score */
            score: {
                [key: string]: number;
            } | null;
            /** Model */
            model: string;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /** Cause */
            cause: string;
        };
        /** NodeExplanation */
        NodeExplanation: {
            /** Node */
            node: string;
            status: components["schemas"]["NodeStatus"];
            /** Reason */
            reason: string;
            /** Replicas */
            replicas: components["schemas"]["ReplicaObject"][];
            /** Decisions */
            decisions: components["schemas"]["NodeDecision"][];
            /** Slow Builds */
            slow_builds: components["schemas"]["SlowBuild"][];
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
            node_status: components["schemas"]["NodeStatus"];
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
         * @description The state that users see: LocalAI's statuses and `joining`.
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
         * @description Unknown byte counts are null, never 0.
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
            /** @description LocalAI's status, which has no `joining`. */
            status: components["schemas"]["NodeStatus"];
            state: components["schemas"]["NodeState"];
            /**
             * Reachable
             * @description Whether it receives commands; a condition may still keep new models away.
             */
            reachable: boolean;
            /**
             * Status Reason
             * @description Why the node has this status; empty when there is nothing to explain.
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
             * @description How its backends are isolated: `full`, `partial` or `none`; null when not reported.
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
             * Drain Requested
             * @description Whether an administrator requested the drain; otherwise the worker is stopping.
             */
            drain_requested: boolean;
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
             * @description Facts about its machine that the worker could not detect.
             */
            problems: string[];
            /**
             * Conditions
             * @description Conditions that keep it from taking new work.
             */
            conditions: components["schemas"]["ConditionView"][];
            /** @description A second machine with the same identity. */
            conflict: components["schemas"]["ConflictView"] | null;
            /**
             * Claims
             * @description Machines that registered under this name and wait for a decision.
             */
            claims: components["schemas"]["ClaimView"][];
            /** @description Recent messages of this node that could not be decoded or stored. */
            refused: components["schemas"]["RefusedView"] | null;
        };
        /**
         * OnDrift
         * @enum {string}
         */
        OnDrift: "correct" | "report" | "freeze";
        /** OperationList */
        OperationList: {
            /** Operations */
            operations: components["schemas"]["OperationView"][];
        };
        /**
         * OperationNodeView
         * @description One node of an operation. Fields that are named as in `TransferProgress` are taken from there.
         */
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
            /** Method */
            method: string;
        };
        /** OperationStarted */
        OperationStarted: {
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
        /**
         * OtherCandidates
         * @description Nodes with the same verdict that are not listed one by one.
         */
        OtherCandidates: {
            /** Verdict */
            verdict: string;
            /** Reason */
            reason: string;
            /** Nodes */
            nodes: number;
        };
        /** OutdatedNode */
        OutdatedNode: {
            /** Node Id */
            node_id: string;
            /** Node Name */
            node_name: string;
            /** Version */
            version: string;
            /** Digest */
            digest: string;
            /** Available Version */
            available_version: string;
            /** Available Digest */
            available_digest: string;
            /** Cause */
            cause: string;
            /**
             * Pinned
             * @default
             */
            pinned: string;
            /**
             * Held Back
             * @default
             */
            held_back: string;
            /**
             * Rolling Out
             * @default
             */
            rolling_out: string;
        };
        /** OverviewView */
        OverviewView: {
            /** Sample S */
            sample_s: number;
            /** Samples */
            samples: components["schemas"]["SampleView"][];
        };
        /** PauseBody */
        PauseBody: {
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /**
         * PendingView
         * @description The newest revision, which does not serve yet; the one before serves.
         */
        PendingView: {
            /** Revision */
            revision: string;
            /** Number */
            number: number;
            /** Serving */
            serving: string;
            /** Serving Number */
            serving_number: number;
            /** Reason */
            reason: string;
            /** Failures */
            failures: number;
            /** Held */
            held: boolean;
        };
        /**
         * PerNode
         * @description How a replica is replaced on its node.
         * @enum {string}
         */
        PerNode: "auto" | "rolling" | "stop-first";
        /** PinBody */
        PinBody: {
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
            /** Version */
            version: string;
            rollout?: components["schemas"]["RolloutBody"] | null;
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /**
         * PinView
         * @description A version that is desired on all nodes, on those that a selector matches, or on named ones.
         */
        PinView: {
            /** Id */
            id: string;
            /** Backend */
            backend: string;
            /** Selector */
            selector: {
                [key: string]: string;
            };
            /** Nodes */
            nodes: string[];
            /** Follows */
            follows: boolean;
            /** Version */
            version: string;
            /** Builds */
            builds: components["schemas"]["PinnedBuildView"][];
            /** Reason */
            reason: string;
            /** Created By */
            created_by: string;
            /** Created At */
            created_at: string | null;
            /** Operation Id */
            operation_id: string;
            /** Summary */
            summary: string;
        };
        /** PinnedBuildView */
        PinnedBuildView: {
            /** Variant */
            variant: string;
            /** Version */
            version: string;
            /** Digest */
            digest: string;
        };
        /** PolicyBody */
        PolicyBody: {
            on_drift?: components["schemas"]["OnDrift"] | null;
            rollout?: components["schemas"]["RolloutBody"] | null;
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
            ensure: components["schemas"]["Ensure"];
            on_drift: components["schemas"]["OnDrift"];
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
            rollout: components["schemas"]["RolloutRequest"] | null;
            /** Pins */
            pins: components["schemas"]["PinView"][];
        };
        /** PreviewNodeView */
        PreviewNodeView: {
            /** Node Id */
            node_id: string;
            /** Node Name */
            node_name: string;
            /** From Build */
            from_build: string;
            /** From Version */
            from_version: string;
            /** To Build */
            to_build: string;
            /** To Version */
            to_version: string;
            /** Method */
            method: string;
            /** Reason */
            reason: string;
        };
        /** PreviewSkippedView */
        PreviewSkippedView: {
            /** Node Name */
            node_name: string;
            /** Reason */
            reason: string;
        };
        /** PreviewView */
        PreviewView: {
            /** Backend */
            backend: string;
            /** Strategy */
            strategy: string;
            /** Soak S */
            soak_s: number;
            /** Waves */
            waves: components["schemas"]["PreviewNodeView"][][];
            /** Other Nodes */
            other_nodes: string[];
            /** Skipped */
            skipped: components["schemas"]["PreviewSkippedView"][];
        };
        /**
         * Priority
         * @description Decides the order in the queue while every replica is busy.
         * @enum {string}
         */
        Priority: "high" | "normal" | "low";
        /** RefusedView */
        RefusedView: {
            /**
             * Count
             * @description Number of rejected messages since it joined.
             */
            count: number;
            /**
             * Reason
             * @description Why the latest was rejected.
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
        /** RejectedImport */
        RejectedImport: {
            /** File */
            file: string;
            /** Reason */
            reason: string;
        };
        /**
         * ReplicaObject
         * @description LocalAI's NodeModel with Corral's own fields.
         */
        ReplicaObject: {
            /** Id */
            id: string;
            /** Node Id */
            node_id: string;
            /** Model Name */
            model_name: string;
            /** Replica Index */
            replica_index: number;
            /** Address */
            address: string;
            state: components["schemas"]["LocalAiReplicaState"];
            /** In Flight */
            in_flight: number;
            /** Last Used */
            last_used: string | null;
            /** Created At */
            created_at: string | null;
            /** Updated At */
            updated_at: string | null;
            corral_state: components["schemas"]["ReplicaViewState"];
            /** Backend Type */
            backend_type?: string | null;
            /** Config Revision */
            config_revision?: string | null;
            /** Reason */
            reason?: string | null;
            /** Backend Digest */
            backend_digest?: string | null;
            /** Protocol */
            protocol?: string | null;
            /** Cleanup Error */
            cleanup_error?: string | null;
            /** Cleanup Attempts */
            cleanup_attempts?: number | null;
            /** Cleanup Next Retry At */
            cleanup_next_retry_at?: string | null;
            /** Memory Bytes */
            memory_bytes?: number | null;
            /** Capacity */
            capacity?: number | null;
            /** Slots */
            slots?: number | null;
            /** Context */
            context?: number | null;
            /** Ready At */
            ready_at?: string | null;
            /** Node */
            node?: string | null;
        };
        /** ReplicaSummary */
        ReplicaSummary: {
            /** Node */
            node: string;
            /** Slot */
            slot: number;
            state: components["schemas"]["ReplicaViewState"];
            /** Reason */
            reason: string;
        };
        /** ReplicaTrace */
        ReplicaTrace: {
            /** Replica */
            replica: string;
            /** Node */
            node: string;
            /** Slot */
            slot: number;
            /** Open */
            open: number | null;
        };
        /**
         * ReplicaViewState
         * @description What a replica does now. It is `ready` only if requests can reach it.
         * @enum {string}
         */
        ReplicaViewState: "starting" | "loading" | "ready" | "offline" | "draining" | "stopping" | "failed";
        /** RequestExplanation */
        RequestExplanation: {
            /** Id */
            id: string;
            /** Model */
            model: string;
            /** Path */
            path: string;
            /**
             * Began At
             * Format: date-time
             */
            began_at: string;
            /** State */
            state: string;
            /** Status */
            status: number;
            /** Key */
            key?: string | null;
            /** First Byte S */
            first_byte_s?: number | null;
            /** Took S */
            took_s?: number | null;
            /** Load Waited S */
            load_waited_s?: number | null;
            /** Queued S */
            queued_s?: number | null;
            /** Queue Position */
            queue_position?: number | null;
            chosen?: components["schemas"]["ReplicaTrace"] | null;
            /** Rule */
            rule?: string | null;
            against?: components["schemas"]["ReplicaTrace"] | null;
            /** Candidates */
            candidates?: components["schemas"]["ReplicaTrace"][] | null;
            /** Failed */
            failed?: components["schemas"]["FailureTrace"][] | null;
            /** Continuations */
            continuations?: number | null;
            /** Route */
            route?: string | null;
            /** Skipped */
            skipped?: components["schemas"]["SkippedModel"][] | null;
            /** Ending */
            ending?: string | null;
            decision?: components["schemas"]["DecisionView"] | null;
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
        /** RevisionChanges */
        RevisionChanges: {
            /** Number */
            number: number;
            /** Against */
            against: number | null;
            /** Changes */
            changes: components["schemas"]["FieldChangeView"][];
        };
        /**
         * RevisionState
         * @enum {string}
         */
        RevisionState: "pending" | "failed" | "current" | "superseded" | "discarded" | "deleted";
        /** RevisionView */
        RevisionView: {
            /** Number */
            number: number;
            /** Revision */
            revision: string;
            state: components["schemas"]["RevisionState"];
            /** Reason */
            reason: string;
            /** Comment */
            comment: string;
            /** Config */
            config: string;
            /**
             * At
             * Format: date-time
             */
            at: string;
            /** Actor */
            actor: string;
            /** Served At */
            served_at: string | null;
        };
        /** Rollback */
        Rollback: {
            /**
             * To
             * @default
             */
            to: string;
            /**
             * Comment
             * @default
             */
            comment: string;
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
            /**
             * Reason
             * @default
             */
            reason: string;
        };
        /**
         * RolloutBody
         * @description What is not given is decided by the policy, then by the settings.
         */
        RolloutBody: {
            strategy?: components["schemas"]["Strategy"] | null;
            /**
             * Waves
             * @default []
             */
            waves: string[];
            /** Soak S */
            soak_s?: number | null;
            per_node?: components["schemas"]["PerNode"] | null;
            /** Unjudged Passes */
            unjudged_passes?: boolean | null;
        };
        /** RolloutEventView */
        RolloutEventView: {
            /** At */
            at: string | null;
            /** Wave */
            wave: number;
            /** Actor */
            actor: string;
            /** Kind */
            kind: string;
            /** Text */
            text: string;
        };
        /** RolloutList */
        RolloutList: {
            /** Rollouts */
            rollouts: components["schemas"]["RolloutView"][];
            /** Revisions */
            revisions: components["schemas"]["ModelRolloutView"][];
        };
        /** RolloutNodeView */
        RolloutNodeView: {
            /** Node Id */
            node_id: string;
            /** Node Name */
            node_name: string;
            /** Node Class */
            node_class: string;
            /** Variant */
            variant: string;
            /** Previous Version */
            previous_version: string;
            /** Method */
            method: string;
            /** Used Method */
            used_method: string;
            /** State */
            state: string;
            /** Error */
            error: string;
        };
        /**
         * RolloutRequest
         * @description What a command or a policy says about a rollout. None and empty leave it to the policy, then to the settings.
         */
        RolloutRequest: {
            strategy?: components["schemas"]["Strategy"] | null;
            /**
             * Sizes
             * @default []
             */
            sizes: string[];
            /** Soak S */
            soak_s?: number | null;
            per_node?: components["schemas"]["PerNode"] | null;
            /** Unjudged Passes */
            unjudged_passes?: boolean | null;
        };
        /**
         * RolloutState
         * @enum {string}
         */
        RolloutState: "running" | "paused" | "awaiting_promotion" | "rolling_back" | "completed" | "failed" | "aborted";
        /** RolloutView */
        RolloutView: {
            /** Id */
            id: string;
            /** Backend */
            backend: string;
            /** Verb */
            verb: string;
            /** Actor */
            actor: string;
            strategy: components["schemas"]["Strategy"];
            state: components["schemas"]["RolloutState"];
            /** Reason */
            reason: string;
            /** Summary */
            summary: string;
            /** Waits For */
            waits_for: string;
            /** Is Overdue */
            is_overdue: boolean;
            /** Wave */
            wave: number;
            /** Wave Count */
            wave_count: number;
            /** Soak S */
            soak_s: number;
            per_node: components["schemas"]["PerNode"];
            /** Unjudged Passes */
            unjudged_passes: boolean;
            /** Versions */
            versions: components["schemas"]["VersionChangeView"][];
            /** Waves */
            waves: components["schemas"]["RolloutWaveView"][];
            /** Held Back */
            held_back: boolean;
            /** Held Back Note */
            held_back_note: string;
            /** Allowed By */
            allowed_by: string;
            /** Rollback Operation Id */
            rollback_operation_id: string | null;
            /** Created At */
            created_at: string | null;
            /** Changed At */
            changed_at: string | null;
            /** Ended At */
            ended_at: string | null;
            /** Events */
            events: components["schemas"]["RolloutEventView"][];
        };
        /** RolloutWaveView */
        RolloutWaveView: {
            /** Number */
            number: number;
            /** State */
            state: string;
            /** Began At */
            began_at: string | null;
            /** Soak Ends At */
            soak_ends_at: string | null;
            /** Nodes */
            nodes: components["schemas"]["RolloutNodeView"][];
            /** Gates */
            gates: components["schemas"]["GateVerdict"][];
        };
        /** RouteBody */
        RouteBody: {
            /** Tiers */
            tiers: components["schemas"]["TargetBody"][][];
            /**
             * Sticky
             * @default false
             */
            sticky: boolean;
        };
        /** RouteTargetView */
        RouteTargetView: {
            /** Model */
            model: string;
            /** Weight */
            weight: number;
            /** Ready */
            ready: number;
        };
        /** RouteView */
        RouteView: {
            /** Name */
            name: string;
            /** Tiers */
            tiers: components["schemas"]["RouteTargetView"][][];
            /** Sticky */
            sticky: boolean;
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
            /** Changed By */
            changed_by: string;
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
         * @description Replaces the stored scheduling. The last four fields keep their stored value when they are left out.
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
         * SchedulingView
         * @description Answers leave out fields that have their default, as LocalAI does.
         */
        SchedulingView: {
            /** Id */
            id: string;
            /** Model Name */
            model_name: string;
            /** Min Replicas */
            min_replicas: number;
            /** Max Replicas */
            max_replicas: number;
            /** Unsatisfiable Ticks */
            unsatisfiable_ticks: number;
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
            /** Node Selector */
            node_selector?: string | null;
            /** Spread All */
            spread_all?: boolean | null;
            /** Route Policy */
            route_policy?: string | null;
            /** Balance Abs Threshold */
            balance_abs_threshold?: number | null;
            /** Balance Rel Threshold */
            balance_rel_threshold?: number | null;
            /** Unsatisfiable Until */
            unsatisfiable_until?: string | null;
            /** Unsatisfiable Reason */
            unsatisfiable_reason?: string | null;
            /** Possible Replicas */
            possible_replicas?: number | null;
            /** Possible Reason */
            possible_reason?: string | null;
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
        /** SkippedModel */
        SkippedModel: {
            /** Model */
            model: string;
            /** Reason */
            reason: string;
        };
        /**
         * SlowBuild
         * @description A CPU build on a node with an accelerator.
         */
        SlowBuild: {
            /** Node Id */
            node_id: string;
            /** Node Name */
            node_name: string;
            /** Backend */
            backend: string;
            /** Build */
            build: string;
            /** Capability */
            capability: string;
            /** Reason */
            reason: string;
            /** Remedy */
            remedy: string;
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
             * @description Nodes whose name another machine claims, for an administrator to decide.
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
        /**
         * Strategy
         * @enum {string}
         */
        Strategy: "all" | "waves" | "canary";
        /** TargetBody */
        TargetBody: {
            /** Model */
            model: string;
            /**
             * Weight
             * @default 1
             */
            weight: number;
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
        /** Unchecked */
        Unchecked: {
            /** Node Id */
            node_id: string;
            /** Node Name */
            node_name: string;
            /** Reason */
            reason: string;
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
             * Unpin
             * @default false
             */
            unpin: boolean;
            rollout?: components["schemas"]["RolloutBody"] | null;
        };
        /**
         * UpgradeView
         * @description The versions are those of the first node that lags behind; `node_drift` has all of them.
         */
        UpgradeView: {
            /** Backend Name */
            backend_name: string;
            /** Installed Version */
            installed_version: string;
            /** Available Version */
            available_version: string;
            /** Installed Digest */
            installed_digest: string;
            /** Available Digest */
            available_digest: string;
            /** Node Drift */
            node_drift: components["schemas"]["OutdatedNode"][];
            /** Held Back */
            held_back: string;
        };
        /** UpgradesStarted */
        UpgradesStarted: {
            /** Jobs */
            jobs: {
                [key: string]: string;
            };
            /** Refused */
            refused: {
                [key: string]: string;
            };
            /** Pinned */
            pinned: {
                [key: string]: string;
            };
            /** Held Back */
            held_back: {
                [key: string]: string;
            };
        };
        /**
         * UpstreamProtocol
         * @description The API that an attached server speaks.
         * @enum {string}
         */
        UpstreamProtocol: "openai" | "ollama" | "anthropic";
        /**
         * UsageGroup
         * @enum {string}
         */
        UsageGroup: "day" | "key" | "model" | "node";
        /**
         * UsageView
         * @description The sums of one group. Fields that the usage is not grouped by are absent.
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
        /**
         * UsedNow
         * @description What counts towards the limits now, on all frontends, as far as this one knows.
         */
        UsedNow: {
            /** Requests Per Minute */
            requests_per_minute: number;
            /** Tokens Per Minute */
            tokens_per_minute: number;
            /** Concurrent Requests */
            concurrent_requests: number;
            /** Tokens Per Day */
            tokens_per_day: number;
            /** Tokens Per Month */
            tokens_per_month: number;
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
         * @description The variant that nodes of one capability get, or the reason why none fits.
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
        Verb: "install" | "upgrade" | "rollback" | "delete" | "pin" | "follow";
        /** VersionChangeView */
        VersionChangeView: {
            /** Variant */
            variant: string;
            /** Version */
            version: string;
            /** Digest */
            digest: string;
            /** Previous Version */
            previous_version: string;
            /** Previous Digest */
            previous_digest: string;
        };
        /** VramBudget */
        VramBudget: {
            /** Value */
            value: string;
        };
        /** VramBudgetSet */
        VramBudgetSet: {
            /** Vram Budget */
            vram_budget: string;
        };
        /** WhichClaim */
        WhichClaim: {
            /**
             * Claim
             * @description The claim (its id, or the beginning of its id) of the machine that replaces the node; `current` for the machine that has the name now.
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
    downloads_api_node__node_id__downloads_post: {
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
                    "application/json": components["schemas"]["ReplicaObject"][];
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
                    "application/json": components["schemas"]["SchedulingView"][];
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
                    "application/json": components["schemas"]["SchedulingView"];
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
                    "application/json": components["schemas"]["SchedulingView"];
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
                    "application/json": components["schemas"]["ReplicaObject"][];
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
                    "application/json": components["schemas"]["ReplicaObject"][];
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
                    "application/json": {
                        [key: string]: components["schemas"]["ModelSummary"];
                    };
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
                    "application/json": components["schemas"]["ReplicaObject"][];
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
                "application/json": components["schemas"]["ModelOnNode"];
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
                "application/json": components["schemas"]["ModelOnNode"];
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
                    "application/json": components["schemas"]["FitView"];
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
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoadAnswer"];
                };
            };
            /** @description Successful Response */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LoadAnswer"];
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
                    "application/json": components["schemas"]["LoadView"];
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
    list_routes_api_routes_get: {
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
                    "application/json": components["schemas"]["RouteView"][];
                };
            };
        };
    };
    save_route_api_routes__name__put: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RouteBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RouteView"];
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
    delete_route_api_routes__name__delete: {
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
    list_all_endpoints_api_endpoints_get: {
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
                    "application/json": components["schemas"]["EndpointObject"][];
                };
            };
        };
    };
    list_endpoints_api_models__name__endpoints_get: {
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
                    "application/json": components["schemas"]["EndpointObject"][];
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
    attach_endpoint_api_models__name__endpoints_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["AttachRequest"];
            };
        };
        responses: {
            /** @description OK */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AttachAnswer"];
                };
            };
            /** @description Successful Response */
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["AttachAnswer"];
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
    detach_endpoint_api_models__name__endpoints__endpoint__delete: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
                endpoint: string;
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
                    "application/json": components["schemas"]["EndpointObject"];
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
    explain_model_api_why_models__name__get: {
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
                    "application/json": components["schemas"]["ModelExplanation"];
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
    explain_node_api_why_nodes__node_id__get: {
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
                    "application/json": components["schemas"]["NodeExplanation"];
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
    explain_request_api_why_requests__request_id__get: {
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
                    "application/json": components["schemas"]["RequestExplanation"];
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
    list_slow_builds_api_fleet_slow_builds_get: {
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
                    "application/json": components["schemas"]["SlowBuild"][];
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
                    "application/json": string[];
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
                    "application/json": components["schemas"]["LogLineView"][];
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
                    "application/json": components["schemas"]["MaxReplicasSet"];
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
                    "application/json": components["schemas"]["VramBudgetSet"];
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
    edit_key_api_keys__id_or_name__patch: {
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
                "application/json": components["schemas"]["KeyChange"];
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
    show_key_defaults_api_key_defaults_get: {
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
                    "application/json": components["schemas"]["LimitsView"];
                };
            };
        };
    };
    edit_key_defaults_api_key_defaults_patch: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["LimitsView"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["LimitsView"];
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
    show_key_usage_api_keys__id_or_name__usage_get: {
        parameters: {
            query?: {
                days?: number;
            };
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
                    "application/json": components["schemas"]["KeyUsageView"];
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
                by?: components["schemas"]["UsageGroup"][];
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
                    "application/json": components["schemas"]["HistoryCleared"];
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
                    "application/json": components["schemas"]["ChangeResult"];
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
                    "application/json": components["schemas"]["ChangeResult"];
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
                    "application/json": components["schemas"]["ChangeResult"];
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
    list_rollouts_api_rollouts_get: {
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
                    "application/json": components["schemas"]["RolloutList"];
                };
            };
        };
    };
    show_rollout_api_rollouts__rollout_id__get: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                rollout_id: string;
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
                    "application/json": components["schemas"]["RolloutView"];
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
    pause_rollout_api_rollouts__rollout_id__pause_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                rollout_id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["PauseBody"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["RolloutView"];
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
    resume_rollout_api_rollouts__rollout_id__resume_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                rollout_id: string;
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
                    "application/json": components["schemas"]["RolloutView"];
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
    promote_rollout_api_rollouts__rollout_id__promote_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                rollout_id: string;
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
                    "application/json": components["schemas"]["RolloutView"];
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
    abort_rollout_api_rollouts__rollout_id__abort_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                rollout_id: string;
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
                    "application/json": components["schemas"]["RolloutView"];
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
    allow_version_api_rollouts__rollout_id__allow_post: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                rollout_id: string;
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
                    "application/json": components["schemas"]["RolloutView"];
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
                    "application/json": components["schemas"]["JobStatus"];
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
                    "application/json": {
                        [key: string]: components["schemas"]["JobStatus"];
                    };
                };
            };
        };
    };
    delete_api_backends_delete__reference__post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                reference: string;
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
                    "application/json": components["schemas"]["DeleteStarted"];
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
    show_dependents_api_backends__reference__dependents_get: {
        parameters: {
            query?: {
                node?: string[];
                selector?: string[];
            };
            header?: never;
            path: {
                reference: string;
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
                    "application/json": components["schemas"]["Dependents"];
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
            query?: {
                dry_run?: boolean;
            };
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ExternalInstallBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OperationStarted"] | components["schemas"]["PreviewView"];
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
    install_api_backends_install__reference__post: {
        parameters: {
            query?: {
                dry_run?: boolean;
            };
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                reference: string;
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
                    "application/json": components["schemas"]["OperationStarted"] | components["schemas"]["PreviewView"];
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
    upgrade_api_backends_upgrade__reference__post: {
        parameters: {
            query?: {
                dry_run?: boolean;
            };
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                reference: string;
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
                    "application/json": components["schemas"]["OperationStarted"] | components["schemas"]["PreviewView"];
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
    rollback_api_backends__reference__rollback_post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                reference: string;
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
                    "application/json": components["schemas"]["OperationStarted"];
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
    pin_api_backends__reference__pin_post: {
        parameters: {
            query?: {
                dry_run?: boolean;
            };
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                reference: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PinBody"];
            };
        };
        responses: {
            /** @description Successful Response */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OperationStarted"] | components["schemas"]["PreviewView"];
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
    follow_api_backends__reference__follow_post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                reference: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["FollowBody"] | null;
            };
        };
        responses: {
            /** @description Successful Response */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["OperationStarted"];
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
    apply_delete_backends_delete__reference__post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                reference: string;
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
    apply_upgrade_backends_upgrade__reference__post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                reference: string;
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
    delete_everywhere_api_backends_system_delete__reference__post: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string | null;
            };
            path: {
                reference: string;
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
                    "application/json": components["schemas"]["DeleteResult"];
                };
            };
            /** @description Accepted */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeleteResult"];
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
                    "application/json": {
                        [key: string]: components["schemas"]["UpgradeView"];
                    };
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
                    "application/json": {
                        [key: string]: components["schemas"]["UpgradeView"];
                    };
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
                    "application/json": {
                        [key: string]: components["schemas"]["Unchecked"][];
                    };
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
                    "application/json": components["schemas"]["UpgradesStarted"];
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
                    "application/json": components["schemas"]["NodeBackend"][];
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
                    "application/json": components["schemas"]["OperationStarted"];
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
                    "application/json": components["schemas"]["OperationStarted"];
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
                    "application/json": components["schemas"]["DeleteResult"];
                };
            };
            /** @description Accepted */
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["DeleteResult"];
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
                    "application/json": components["schemas"]["FleetBackend"][];
                };
            };
        };
    };
    explain_api_why_backends__name__get: {
        parameters: {
            query?: {
                node?: string | null;
            };
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
                    "application/json": components["schemas"]["BackendExplanation"];
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
    list_pins_api_pins_get: {
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
                    "application/json": components["schemas"]["PinView"][];
                };
            };
        };
    };
    list_intents_api_intents_get: {
        parameters: {
            query?: {
                node_id?: string | null;
                backend?: string | null;
                state?: components["schemas"]["IntentState"] | null;
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
    list_backends_page_api_backends_get: {
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
    list_installed_backends_backends_get: {
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
    list_available_backends_backends_available_get: {
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
    list_known_backends_backends_known_get: {
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
    list_backend_galleries_backends_galleries_get: {
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
    list_available_models_models_available_get: {
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
    pull_model_api_pull_post: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    model: string;
                    stream?: boolean;
                };
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    delete_pulled_model_api_delete_delete: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": {
                    model: string;
                };
            };
        };
        responses: {
            /** @description Successful Response */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
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
    show_changes_api_models__name__revisions__revision__changes_get: {
        parameters: {
            query?: {
                against?: string;
            };
            header?: never;
            path: {
                name: string;
                revision: string;
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
                    "application/json": components["schemas"]["RevisionChanges"];
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
    roll_back_api_models__name__rollback_post: {
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
                "application/json": components["schemas"]["Rollback"] | null;
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
                    "application/json": components["schemas"]["ModelObject"][];
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
                    "application/json": components["schemas"]["ModelObject"];
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
